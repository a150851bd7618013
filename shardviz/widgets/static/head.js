// The headline: what moves, how often, memory, problems; and at which level of truth, how fresh.
import { h, fill } from "./dom.js";
import { axesChips, axisText } from "./chips.js";

const LEVELS = {
  propagated: "Shardy's propagation: shardings are sure, collectives are a prediction",
  partitioned: "XLA's partitioner: the collectives as it makes them",
  compiled: "the whole compiler: collectives and memory plan",
};

// What a busy state is doing, in a word; the whole sentence is its title.
const DOING = { propagating: "partitioning", compiling: "partitioning", partitioned: "planning memory" };

function kpi(label, id, ...value) {
  return h("div", { class: "sv-kpi", id }, h("small", {}, label), h("div", {}, value));
}

// `3 problems · 6 notes`
export function counts(problems, notes) {
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  return plural(problems, "problem") + (notes ? ` · ${plural(notes, "note")}` : "");
}

export function head(ctx, el) {
  const numbers = h("div", { class: "sv-kpis" });
  const level = h("div", { class: "sv-level", id: "level", role: "status", "aria-live": "polite" });
  const banner = h("div", { class: "sv-banners" });
  el.append(h("div", { class: "sv-head" }, numbers, level), banner);
  let started = performance.now();
  let timer = null;
  let gone = false;
  let rest = () => {}; // says how many axes are not shown

  // `drop` marks what goes first, second, ... where the row is too narrow for everything.
  const drop = (order, ...inside) => h("span", { "data-drop": order }, inside);

  function drawNumbers() {
    const data = ctx.get("head");
    const moved = data.moved.map((m, i) => h("span", { class: "sv-moved", title: `${m.text}: ${m.title}`, "data-drop": [null, 8, 4, 3][i] },
      axesChips(ctx, m.axes), " ", h("b", {}, m.text), " "));
    const more = h("span", { class: "sv-soft", hidden: true });
    rest = () => {
      const hidden = moved.filter((part) => part.hidden).length;
      more.textContent = `+${data.moved_rest.length + hidden}`;
      more.title = [...data.moved.slice(data.moved.length - hidden).map((m) => `${(m.axes || ["no product of axes"]).map(axisText).join(", ")}: ${m.text}`), ...data.moved_rest].join("\n");
      more.hidden = !data.moved_rest.length && !hidden;
    };
    const plan = data.memory;
    const changed = data.changed ? kpi("last edit changed", "kpi-changed", h("button", {
      class: "sv-link", title: "show these values", onclick: () => { ctx.query({ changed: true }); ctx.setTab("values"); },
    }, h("b", {}, data.changed), drop(2, ` of ${data.values}`), " values")) : null;
    const collectives = kpi("collectives", "kpi-collectives", h("b", {}, data.collectives), drop(5, h("span", { class: "sv-soft" }, ` · ${data.runs}`)));
    if (changed) changed.setAttribute("data-drop", 7);
    collectives.setAttribute("data-drop", 6);
    fill(numbers,
      h("div", { class: "sv-title", title: `${data.program} on ${data.mesh}` }, h("h1", {}, data.program), h("small", {}, drop(1, `${data.mesh} · `), data.devices)),
      kpi("moved per device", "kpi-moved", moved.length ? moved : h("b", {}, "nothing"), more),
      collectives,
      plan ? kpi(`memory per device, ${plan.target} plan`, "kpi-memory", h("b", { title: `${plan.caution} ${plan.detail}` }, plan.total))
        : kpi("arguments", "kpi-memory", h("b", {}, data.arguments), h("span", { class: "sv-soft" }, " per device")),
      kpi("problems", "kpi-problems", h("button", {
        class: `sv-link ${data.problems ? "sv-warn" : "sv-plain"}`, title: counts(data.problems, data.notes), onclick: () => ctx.setTab("problems"),
      }, h("b", {}, data.problems), data.notes ? h("span", { class: "sv-soft" }, ` · ${data.notes} note${data.notes === 1 ? "" : "s"}`) : null)),
      changed,
    );
    fit();
  }

  // One row if it can be: the least important goes first, and comes back if what went after it made room enough. What
  // is still too long goes on a second row, where there is room for the more important things that went.
  function fit() {
    const parts = [...numbers.querySelectorAll("[data-drop]")].sort((a, b) => a.dataset.drop - b.dataset.drop);
    const fits = () => numbers.scrollWidth <= numbers.clientWidth;
    const narrow = numbers.parentElement.clientWidth < 880; // where the panes stand one above the other
    for (const part of parts) part.hidden = false;
    numbers.classList.remove("sv-wrap");
    rest();
    const gone = [];
    for (const part of parts) {
      if (narrow || fits()) break;
      part.hidden = true;
      rest();
      gone.unshift(part);
    }
    const wrap = !fits();
    numbers.classList.toggle("sv-wrap", wrap);
    for (const part of gone) {
      part.hidden = wrap && part.dataset.drop < 5;
      rest();
      if (!wrap && !fits()) part.hidden = true;
    }
    rest();
  }

  function seconds() {
    const s = ctx.get("status");
    const t = s.busy ? (performance.now() - started) / 1000 : s.seconds;
    return t === null || t === undefined ? "" : `${t.toFixed(1)} s`;
  }

  function drawLevel() {
    const s = ctx.get("status");
    const trouble = s.status === "stopped" || s.status === "failed";
    const clock = h("span", { class: "sv-clock" }, seconds());
    fill(level,
      h("div", { class: "sv-levelname", title: LEVELS[s.level] || "", "data-level": s.level, "data-busy": String(s.busy), "data-seq": s.seq },
        h("span", { class: `sv-dot sv-${s.level} ${s.busy ? "sv-busy" : ""}`, "aria-hidden": "true" }), s.level),
      h("small", {},
        s.busy ? [h("span", { title: s.message }, DOING[s.status] || "working"), " ", clock, " ", h("button", {
          class: "sv-stop", id: "stop", title: "stop the compile; what is known stays", onclick: () => ctx.edit({ op: "stop" }),
        }, "■ stop")] : trouble ? h("span", { class: "sv-warn" }, s.status, " after ", clock) : clock));
    clearInterval(timer);
    if (s.busy) timer = setInterval(() => { clock.textContent = seconds(); }, 100);
  }

  function drawBanner() {
    const { error, failure } = ctx.get("status");
    const parts = [];
    if (gone) {
      parts.push(notice("sv-info", "gone", "No kernel answers here: it was restarted, shut down, or never ran for this copy. "
        + "What is shown is its last answer; run the cell again to go on."));
    }
    if (error && (error.place === "internal" || error.place === "plan")) {
      parts.push(notice("sv-error", "error", error.message, error.detail));
    }
    if (failure && failure.kind !== "CompileStopped") {
      parts.push(notice("sv-warning", "failure", `${failure.kind}: ${failure.message}`, failure.stderr,
        h("button", { class: "sv-btn", id: "recompile", onclick: () => ctx.edit({ op: "recompile" }) }, "try again")));
    } else if (failure) {
      parts.push(notice("sv-info", "failure", failure.message, "",
        h("button", { class: "sv-btn", id: "recompile", onclick: () => ctx.edit({ op: "recompile" }) }, "compile")));
    }
    fill(banner, parts);
  }

  let wasBusy = false;
  ctx.on("head", drawNumbers);
  ctx.on("mesh", drawNumbers);
  ctx.on("status", () => {
    const s = ctx.get("status");
    if (s.busy && (!wasBusy || s.level === "propagated" && s.status === "propagating")) started = performance.now();
    wasBusy = s.busy;
    drawLevel();
    drawBanner();
  });
  drawNumbers();
  drawLevel();
  drawBanner();
  ctx.onAlive((alive) => { gone = !alive; drawBanner(); });
  const watch = new ResizeObserver(fit);
  watch.observe(numbers.parentElement);
  return () => { clearInterval(timer); watch.disconnect(); };
}

export function notice(kind, id, message, detail, ...more) {
  return h("div", { class: `sv-notice ${kind}`, id, role: "alert" }, h("span", {}, message), more,
    detail ? h("details", {}, h("summary", {}, "details"), h("pre", {}, detail)) : null);
}
