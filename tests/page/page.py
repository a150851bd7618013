"""The explorer's page outside JupyterLab, with a model that stands for the kernel's, and what is asked of its looks."""

import base64
import json

from shardviz.page import bundle
from shardviz.page.explorer import VIEWS

PARTS = tuple(VIEWS)
ASKED = ("query", "tab", "reading", "wants", "device", "opened", "span")
TRAITS = (*PARTS, *ASKED, "selected_at", "comm_id", "stilled")

MODEL = """const decoded = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const data = JSON.parse(new TextDecoder().decode(decoded("{data}")));
window.listeners = {{}};
window.sent = [];
window.model = {{
  get: (key) => data[key],
  set(key, value) {{ data[key] = value; for (const fn of listeners[`change:${{key}}`] || []) fn(); }},
  on(key, fn) {{ (listeners[key] = listeners[key] || []).push(fn); }},
  off(key, fn) {{ listeners[key] = (listeners[key] || []).filter((other) => other !== fn); }},
  save_changes() {{}},
  send(message) {{ sent.push(message); }},
  trigger(event, message) {{ for (const fn of listeners[event] || []) fn(message); }},
  widget_manager: {{ get_model: async () => ({{ comm_live: window.alive !== false }}) }},
}};
"""
"""What stands in a page for the model of a widget; `data` are its traits."""

PAGE = (
    """<!doctype html><meta charset="utf-8"><style>{css}</style><body data-jp-theme-light="{light}">
<div id="app"></div><script type="module">
"""
    + MODEL
    + """window.listening = () => Object.values(listeners).flat().length;
const code = new Blob([decoded("{module}")], {{ type: "text/javascript" }});
const {{ default: widget }} = await import(URL.createObjectURL(code));
window.show = (el) => widget.render({{ model, el }});
window.again = () => {{ window.end = show(document.getElementById("app")); }};
again();
window.ready = true;
</script>"""
)


def say(explorer, **edit):
    """Has an explorer answer an edit, which its page sends as the next one."""
    explorer._on_message(explorer, {"edit": edit, "seq": explorer.status["seq"] + 1}, [])


class Page:
    """The explorer's page. `edits()` are what it asked of the kernel; `answer` is what the kernel then says."""

    def __init__(self, tab, path, explorer, width=1280, light=True):
        self.tab, self.explorer, self.errors, self.heard = tab, explorer, [], 0
        self.shown = {name: getattr(explorer, name) for name in TRAITS}
        text = json.dumps(self.shown)
        encode = lambda s: base64.b64encode(s.encode()).decode()
        path.write_text(
            PAGE.format(
                css=bundle.styles(), light=str(light).lower(), data=encode(text), module=encode(bundle.module())
            )
        )
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.tab.on("pageerror", self.errs)
        self.tab.set_default_timeout(8000)
        self.tab.goto(path.as_uri())
        self.tab.wait_for_function("window.ready")

    def errs(self, error):
        """Keeps what nobody caught in the page."""
        self.errors.append(str(error))

    def leave(self):
        """Leaves the tab to the next page, as it was; no error may have come."""
        self.tab.remove_listener("pageerror", self.errs)
        self.tab.emulate_media(color_scheme="null")
        self.tab.mouse.move(0, 0)
        assert not self.errors

    def at(self, name):
        return self.tab.get_by_test_id(name)

    def go(self, view):
        """Goes to a view by its tab, as a person does; the widget answers what it asks for."""
        if not self.at(f"tab-{view}").is_visible():
            self.at("more").click()
        self.click(f"tab-{view}")
        self.tab.evaluate(PAINTED)  # tables that are too wide become cards in the frame in which they are measured

    def element(self, what):
        """An element, or that of a name."""
        return self.at(what) if isinstance(what, str) else what

    def click(self, what):
        """Clicks an element, or what has a name; the widget answers."""
        self.element(what).click()
        self.answer()

    def drag(self, what, to):
        """Drags an element onto another one as a person does: in small steps, with a pause before the drop."""
        (x, y), (end_x, end_y) = (
            (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            for box in (self.element(each).bounding_box() for each in (what, to))
        )
        self.tab.mouse.move(x, y)
        self.tab.mouse.down()
        self.tab.mouse.move(end_x, end_y, steps=20)
        self.tab.wait_for_timeout(100)
        self.tab.mouse.move(end_x + 1, end_y)
        self.tab.mouse.up()

    def press(self, key):
        """Presses a key; the widget answers."""
        self.tab.keyboard.press(key)
        self.answer()

    def enter(self, what, text):
        """Fills a field, and presses Enter in it; the widget answers."""
        self.element(what).fill(text)
        self.element(what).press("Enter")
        self.answer()

    def edits(self):
        return [message["edit"] for message in self.tab.evaluate("sent") if "edit" in message]

    def answer(self):
        """Has the widget do what the page asks for, and the page show what came of it."""
        for name in ("selected_at", "selected", *ASKED):
            now = self.tab.evaluate("(name) => model.get(name)", name)
            if now != self.shown[name]:
                self.shown[name] = now
                setattr(self.explorer, name, now)
        messages = self.tab.evaluate("sent")
        for message in messages[self.heard :]:
            if "ask" not in message:
                self.explorer._on_message(self.explorer, message, [])
        self.heard = len(messages)
        for name, old in self.shown.items():
            new = self.shown[name] = getattr(self.explorer, name)
            if new != old:
                self.tab.evaluate("([name, value]) => model.set(name, value)", [name, new])

    def widths(self, *widths):
        """The page at one width after the other."""
        for width in widths:
            self.tab.set_viewport_size({"width": width, "height": 900})
            self.tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            yield width

    def focus(self):
        return self.tab.evaluate("document.activeElement.dataset.testid")


# The least contrast (WCAG 2.2) between a text and the ground it stands on.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const lum = ([r, g, b]) => {
    const f = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  let worst = { ratio: 99 };
  const walker = document.createTreeWalker(document.getElementById("app"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const el = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !el.checkVisibility()) continue;
    if (el.closest("svg, [hidden], :disabled, [aria-disabled], [aria-hidden]")) continue;
    if (/^[\\[\\],·]+$/.test(walker.currentNode.data.trim())) continue;
    let ground = document.body.dataset.jpThemeLight === "false" ? [17, 17, 17] : [255, 255, 255];
    const chain = [];
    for (let e = el; e; e = e.parentElement) chain.unshift(e);
    let opacity = 1;
    for (const e of chain) {
      const style = getComputedStyle(e);
      ground = over(rgba(style.backgroundColor), ground);
      opacity *= Number(style.opacity);
    }
    const ink = rgba(getComputedStyle(el).color);
    ink[3] *= opacity;
    const [low, high] = [lum(over(ink, ground)), lum(ground)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < worst.ratio) worst = { ratio, text: walker.currentNode.data, cls: el.className };
  }
  return worst;
}"""

PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"

# What of a pane cannot be read: what sticks out of it, what is cut off without an ellipsis, and what has one without
# the whole text in a title. A pane that scrolls sideways is reported too.
UNREADABLE = """(pane) => {
  const bad = [];
  const edge = pane.getBoundingClientRect().right + 0.5;
  const say = (what, el) => bad.push(`${what}: ${el.className || el.tagName} ${el.textContent.slice(0, 60)}`);
  for (const el of [pane, ...pane.querySelectorAll("*")]) {
    if (!el.checkVisibility() || el.closest("pre, svg")) continue;
    const style = getComputedStyle(el);
    if (style.display !== "inline" && style.overflowX !== "visible" && el.scrollWidth > el.clientWidth + 1
        && !el.matches("input")) {
      if (style.textOverflow !== "ellipsis") say("cut off", el);
      else if (!el.closest("[title]")) say("no title", el);
    }
    let free = true;
    for (let up = el.parentElement; up && up !== pane.parentElement; up = up.parentElement) {
      free = free && (up === pane || getComputedStyle(up).overflowX === "visible");
    }
    if (free && el.getBoundingClientRect().right > edge) say("sticks out", el);
  }
  return bad;
}"""

# Texts below 12 pixels, those of pictures as large as they are drawn.
SMALL = """(pane) => {
  const small = [];
  const walker = document.createTreeWalker(pane, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const el = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !el.checkVisibility()) continue;
    const drawn = el.closest("svg") && el.getScreenCTM();
    const size = parseFloat(getComputedStyle(el).fontSize) * (drawn ? Math.hypot(drawn.a, drawn.b) : 1);
    if (size < 11.95) small.push(`${size.toFixed(1)} px: ${walker.currentNode.data.trim()}`);
  }
  return small;
}"""
