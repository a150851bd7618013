// One sharding in every notation, with what each piece of it means; and any notation that a person pastes, read.
import { copyButton, fill, h } from "./dom.js";
import { axisStyle, specChips } from "./chips.js";
import { notice, waiting } from "./head.js";

/** @import { Context } from "./types.d.ts" */

const EXAMPLE = "{devices=[2,4]<=[8]}  ·  #sdy.sharding<@mesh, [{\"data\"}, {}]>  ·  P('data', None)  ·  [data, ·]";

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function rosetta(ctx, el) {
  let showOwn = false; // the value's own notations, though something else was read
  let answered = null; // the text that was answered last
  let meanings = true; // whether each piece is explained
  const input = h("input", {
    type: "text",
    class: "sv-typed",
    id: "read",
    value: ctx.get("reading"),
    spellcheck: "false",
    autocomplete: "off",
    placeholder: EXAMPLE,
    "aria-label": "a sharding in any notation, to be read on this mesh",
    onkeydown: (e) => {
      e.stopPropagation();
      if (e.key === "Enter") read();
    },
    onpaste: () => setTimeout(read),
    oninput: () => {
      button.disabled = input.value === ctx.get("reading");
    },
  });
  const button = h("button", { class: "sv-btn", id: "read-go", disabled: true, onclick: read }, "read");
  const clear = h("button", {
    class: "sv-btn",
    id: "read-clear",
    onclick: () => {
      input.value = "";
      read();
      input.focus();
    },
  }, "clear");
  const answer = h("div", { class: "sv-answer", id: "read-answer", role: "status" });
  const table = h("div", {});
  el.append(
    h(
      "div",
      { class: "sv-reader" },
      h(
        "div",
        { class: "sv-sec" },
        "read any notation",
        h("span", { class: "sv-hint" }, "paste one, or type it and press Enter"),
      ),
      h("div", { class: "sv-readrow" }, input, button, clear),
      answer,
    ),
    table,
  );

  function read() {
    button.disabled = true;
    showOwn = false;
    ctx.read(input.value);
  }

  const chips = (said) => (said.dims ? specChips(ctx, said.dims, said.unreduced) : h("code", {}, said.short));
  const name = (data) => h("code", { class: "sv-what" }, data.label || data.name);

  function applying(data, said) {
    if (said.same) return h("span", { class: "sv-good", id: "read-same" }, "✓ ", name(data), " has this sharding");
    if (!said.apply) {
      return h("span", { class: "sv-soft", id: "read-cannot" }, "It cannot be applied: ", said.cannot, ".");
    }
    const row = ctx.get(data.role === "output" ? "outputs" : "inputs").rows.find((r) => r.name === data.name);
    const twins = row && row.twins && row.twins.length && ctx.twins ? row.twins.length : 0;
    return h(
      "button",
      {
        class: "sv-btn sv-do",
        id: "read-apply",
        title: twins ? row.twins.join("\n") : null,
        onclick: () =>
          ctx.edit({
            op: data.role === "output" ? "set_out_spec" : "set_spec",
            name: data.name,
            spec: said.apply,
            ...(twins ? { twins: true } : {}),
          }),
      },
      "apply to ",
      name(data),
      twins ? ` and its ${twins} twin${twins === 1 ? "" : "s"}` : "",
    );
  }

  function drawAnswer(data) {
    const said = data.read;
    clear.hidden = !input.value && !said;
    if (!said) {
      fill(answer);
      return;
    }
    if (said.error) {
      fill(answer, notice("sv-error", "read-error", said.error));
      return;
    }
    const { error } = ctx.get("status");
    const refused = error && data.name && error.argument === data.name &&
      (error.place === "argument" || error.place === "output");
    fill(
      answer,
      h(
        "p",
        { class: "sv-reads" },
        chips(said),
        h("span", { class: "sv-soft" }, ` on ${data.mesh}`, said.holds ? [" · ", name(data), `: ${said.holds}`] : null),
      ),
      h("p", {}, applying(data, said)),
      refused ? notice("sv-error", "read-refused", error.message, error.detail) : null,
    );
  }

  function head(data, said, isRead) {
    const choice = data.read && data.read.rows && data.rows && !data.read.same
      ? h(
        "span",
        { class: "sv-choice", role: "group", "aria-label": "which sharding" },
        h("button", {
          class: "sv-btn",
          id: "show-read",
          "aria-pressed": String(isRead),
          onclick: () => {
            showOwn = false;
            draw();
          },
        }, "what was read"),
        h("button", {
          class: "sv-btn",
          id: "show-own",
          "aria-pressed": String(!isRead),
          onclick: () => {
            showOwn = true;
            draw();
          },
        }, data.label || data.name),
      )
      : null;
    return h(
      "div",
      { class: "sv-roshead" },
      isRead
        ? h("b", {}, "What was read,")
        : [name(data), h("span", { class: "sv-soft" }, ` ${data.dtype}${data.shape}`), chips(said)],
      h("span", { class: "sv-soft" }, "in every notation"),
      h("span", { class: "sv-grow" }),
      choice,
      h(
        "label",
        {},
        h("input", {
          type: "checkbox",
          id: "meanings",
          checked: meanings,
          onchange: (e) => {
            meanings = e.target.checked;
            draw();
          },
        }),
        " what each piece means",
      ),
    );
  }

  function draw() {
    const data = ctx.get("rosetta");
    if (!data.mesh) {
      fill(table, waiting(ctx));
      return;
    }
    if (data.read && data.read.text !== answered) showOwn = false;
    answered = data.read ? data.read.text : null;
    drawAnswer(data);
    const isRead = Boolean(data.read && data.read.rows && !(showOwn && data.rows) && !data.read.same);
    const said = isRead ? data.read : data.rows ? data : null;
    if (!said) {
      fill(
        table,
        h(
          "p",
          { class: "sv-empty" },
          data.role ? `${data.label}: ${data.why}` : ctx.get("shards").remark ||
            "Select a value to see its sharding in every notation, or paste one above.",
        ),
      );
      return;
    }
    const remark = !isRead && ctx.get("shards").remark;
    fill(
      table,
      head(data, said, isRead),
      remark ? h("p", { class: "sv-empty sv-remark" }, remark) : null,
      h("table", { class: "sv-table sv-ros", id: "rosetta-table" }, h("tbody", {}, said.rows.map((r) => row(r)))),
    );
  }

  function row(r) {
    const first = h("th", { scope: "row" }, h("b", {}, r.title), h("small", {}, r.met));
    if (r.text === undefined) {
      return h(
        "tr",
        { class: "sv-lacks", id: `rosetta-${r.notation}` },
        first,
        h("td", {}, h("span", { class: "sv-soft" }, h("b", {}, "cannot say it: "), r.why)),
        h("td", {}),
      );
    }
    const text = h("code", {
      class: "sv-rostext",
      id: `text-${r.notation}`,
      tabindex: r.text.length > 120 ? "0" : null,
    }, marked(r));
    const light = (i, on) => {
      for (const mark of text.querySelectorAll(`[data-i="${i}"]`)) mark.classList.toggle("sv-lit", on);
    };
    const said = h(
      "div",
      { class: "sv-letters" },
      r.letters.map(([piece, meaning], i) => {
        const axis = axisOf(piece, r.notation);
        return h(
          "div",
          { onmouseenter: () => light(i, true), onmouseleave: () => light(i, false) },
          h(
            "span",
            {},
            h("code", { style: axis ? axisStyle(ctx, axis) : null, class: axis ? "sv-onaxis" : "" }, piece),
          ),
          h("span", {}, meaning),
        );
      }),
    );
    return h(
      "tr",
      { id: `rosetta-${r.notation}` },
      first,
      h(
        "td",
        {},
        text,
        r.more
          ? h(
            "p",
            { class: "sv-soft" },
            `and ${r.more.toLocaleString("en")} more characters; sv.sharding(…).to("${r.notation}") gives all of it`,
          )
          : null,
        meanings ? said : null,
      ),
      h("td", {}, r.more ? null : copyButton(text, `copy-${r.notation}`, `copy it in this notation: ${r.title}`)),
    );
  }

  // The mesh axis that a piece names and nothing else: 'data', "data", data, I_data, or a part of it.
  function axisOf(piece, notation) {
    const bare = piece.replace(/:\(\d+\)\d+$/, "").replace(/^(['"])(.*)\1$/, "$2").replace(
      notation === "book" ? /^\p{Lu}_/u : "",
      "",
    );
    return ctx.get("mesh").axes.some((a) => a.name === bare) ? bare : null;
  }

  // The text with its pieces marked: underlined in an axis's colour, lit when its meaning is pointed at.
  function marked({ text, letters, notation }) {
    if (text.length > 4000) return breaks(text);
    const meanings = new Map();
    letters.forEach(([piece], i) => meanings.set(piece, [...(meanings.get(piece) || []), i]));
    const words = [...meanings.keys()].filter((p) => p && !p.endsWith("…")).sort((a, b) => b.length - a.length);
    const letter = /[\p{L}\p{N}_]/u;
    const whole = (at, word) =>
      !(letter.test(word[0]) && at > 0 && letter.test(text[at - 1])) &&
      !(letter.test(word[word.length - 1]) && at + word.length < text.length && letter.test(text[at + word.length]));
    const parts = [];
    let plain = 0;
    for (let at = 0; at < text.length;) {
      const word = words.find((w) => text.startsWith(w, at) && whole(at, w));
      if (!word) {
        at += 1;
        continue;
      }
      parts.push(text.slice(plain, at), { word });
      at += word.length;
      plain = at;
    }
    parts.push(text.slice(plain));
    const seen = new Map();
    const times = (word) => parts.filter((p) => p.word === word).length;
    return parts.map((part) => {
      if (!part.word) return breaks(part);
      const nth = seen.get(part.word) || 0;
      seen.set(part.word, nth + 1);
      const mine = meanings.get(part.word);
      // null: which of several meanings it has here is not known.
      const i = mine.length === 1 ? mine[0] : mine.length === times(part.word) ? mine[nth] : null;
      const axis = axisOf(part.word, notation);
      return h("span", {
        "data-i": i,
        title: i === null ? null : letters[i][1],
        class: `sv-piece ${axis ? "sv-onaxis" : ""}`,
        style: axis ? axisStyle(ctx, axis) : null,
      }, breaks(part.word));
    });
  }

  // A line may end after a comma, and not within a number.
  function breaks(text) {
    return text.split(/(?<=,)/).flatMap((part) => [part, h("wbr")]).slice(0, -1);
  }

  for (const key of ["rosetta", "mesh", "shards", "gone"]) ctx.on(key, () => ctx.when("rosetta", draw));
  ctx.on("status", () =>
    ctx.when("rosetta", () => {
      const data = ctx.get("rosetta");
      if (data.mesh) drawAnswer(data);
    }));
  ctx.when("rosetta", draw);
}
