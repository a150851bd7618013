// The headline: what moves, how often, memory, problems; and at which level of truth, how fresh.
import { fill, h } from "./dom.js";
import { axesChips, axisText } from "./chips.js";

const LEVELS = {
  propagated: "Shardy's propagation: shardings are sure, collectives are a prediction",
  partitioned: "XLA's partitioner: the collectives as it makes them",
  compiled: "the whole compiler: collectives and memory plan",
};

const TWO_ROWS = 100; // pixels

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
  let rest = () => {}; // says how many axes are not shown

  // `drop` marks what goes first, second, ... where the row is too narrow for everything.
  const drop = (order, ...inside) => h("span", { "data-drop": order }, inside);

  function drawNumbers() {
    const data = ctx.get("head");
    const moved = data.moved.map((m, i) =>
      h(
        "span",
        { class: "sv-moved", title: `${m.text}: ${m.title}`, "data-drop": [null, 8, 4, 3][i] },
        axesChips(ctx, m.axes),
        " ",
        h("b", {}, m.text),
        " ",
      )
    );
    const more = h("span", { class: "sv-soft", hidden: true });
    rest = () => {
      const hidden = moved.filter((part) => part.hidden).length;
      more.textContent = `+${data.moved_rest.length + hidden}`;
      more.title = [
        ...data.moved.slice(data.moved.length - hidden).map((m) =>
          `${(m.axes || ["no product of axes"]).map(axisText).join(", ")}: ${m.text}`
        ),
        ...data.moved_rest,
      ].join("\n");
      more.hidden = !data.moved_rest.length && !hidden;
    };
    const plan = data.memory;
    const memory = data.fit ? fitted(data.fit) : plan
      ? kpi(
        `memory per device, ${plan.target} plan`,
        "kpi-memory",
        h("b", { title: `${plan.caution} ${plan.detail}` }, plan.total),
      )
      : kpi("arguments", "kpi-memory", h("b", {}, data.arguments), h("span", { class: "sv-soft" }, " per device"));
    const step = data.step
      ? kpi(data.step.label, "kpi-step", h("b", { title: data.step.title }, data.step.text))
      : data.trouble
      ? kpi(data.target, "kpi-step", h("b", { class: "sv-warn", title: data.trouble }, "no cost"))
      : null;
    const bound = data.bound
      ? kpi(
        "bound by",
        "kpi-bound",
        h(
          "span",
          { title: data.bound.title },
          h("b", {}, data.bound.what, drop(8.5, data.bound.over)),
          data.bound.then ? drop(5.5, `, then ${data.bound.then}`) : null,
        ),
      )
      : null;
    const changed = data.changed
      ? kpi(
        "last edit changed",
        "kpi-changed",
        h(
          "button",
          {
            class: "sv-link",
            title: "show these values",
            onclick: () => {
              ctx.query({ changed: true });
              ctx.setTab("values");
            },
          },
          h("b", {}, data.changed),
          drop(2, ` of ${data.values}`),
          " values",
        ),
      )
      : null;
    const collectives = kpi(
      "collectives",
      "kpi-collectives",
      h("b", {}, data.collectives),
      data.runs ? drop(5, h("span", { class: "sv-soft" }, ` · ${data.runs}`)) : null,
    );
    if (changed) changed.setAttribute("data-drop", 7);
    collectives.setAttribute("data-drop", 6);
    fill(
      numbers,
      h(
        "div",
        { class: "sv-title", title: `${data.program} on ${data.mesh}` },
        h("h1", {}, data.program),
        h("small", {}, drop(1, `${data.mesh} · `), data.devices),
      ),
      data.fit ? [memory, step, bound] : null,
      kpi("moved per device", "kpi-moved", moved.length ? moved : h("b", {}, "nothing"), more),
      collectives,
      data.fit ? null : [memory, step],
      kpi(
        "problems",
        "kpi-problems",
        h(
          "button",
          {
            class: `sv-link ${data.problems ? "sv-warn" : "sv-plain"}`,
            title: counts(data.problems, data.notes),
            onclick: () => ctx.setTab("problems"),
          },
          h("b", {}, data.problems),
          data.notes ? h("span", { class: "sv-soft" }, ` · ${data.notes} note${data.notes === 1 ? "" : "s"}`) : null,
        ),
      ),
      changed,
    );
    fit();
  }

  // Whether it fits the machine: a thin bar, the amounts, and the verdict in words.
  function fitted(fit) {
    const part = kpi(
      fit.label,
      "kpi-memory",
      h(
        "button",
        { class: `sv-link sv-plain sv-fit`, title: fit.title, onclick: () => ctx.setTab("memory") },
        h("b", {}, fit.text),
        fit.over ? drop(9, h("span", { class: "sv-over" }, ` ${fit.over}`)) : null,
        h(
          "span",
          { class: "sv-fitbar", "aria-hidden": "true" },
          h("i", { style: { width: `${Math.min(100, Math.max(1, 100 * fit.share))}%` } }),
        ),
      ),
    );
    part.classList.add(`sv-is-${fit.verdict}`);
    return part;
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
      if (wrap ? numbers.clientHeight > TWO_ROWS : !fits()) part.hidden = true;
    }
    rest();
  }

  function seconds() {
    const s = ctx.get("status");
    const t = s.busy ? (performance.now() - started) / 1000 : s.seconds;
    return t === null || t === undefined ? "" : `${t.toFixed(1)} s`;
  }

  // `compiling for tpu v5p:4x4x4`; where there is little room the machine is in the title only.
  function doing(s) {
    const [what, machine] = s.doing.split(" for ");
    return h(
      "span",
      { title: s.message },
      what,
      machine ? h("span", { class: "sv-formachine" }, ` for ${machine}`) : null,
    );
  }

  function drawLevel() {
    const s = ctx.get("status");
    level.classList.toggle("sv-onmachine", ctx.get("targets").kind !== "cpu");
    const trouble = s.status === "stopped" || s.status === "failed";
    const clock = h("span", { class: "sv-clock" }, seconds());
    fill(
      level,
      h(
        "div",
        {
          class: "sv-levelname",
          title: LEVELS[s.level] || "",
          "data-level": s.level,
          "data-busy": String(s.busy),
          "data-seq": s.seq,
        },
        h("span", { class: `sv-dot sv-${s.level} ${s.busy ? "sv-busy" : ""}`, "aria-hidden": "true" }),
        s.level,
      ),
      h(
        "small",
        {},
        s.busy
          ? [
            doing(s),
            " ",
            clock,
            " ",
            h("button", {
              class: "sv-stop",
              id: "stop",
              title: "stop the compile; what is known stays",
              onclick: () => ctx.edit({ op: "stop" }),
            }, "■ stop"),
          ]
          : trouble
          ? h("span", { class: "sv-warn" }, s.status, " after ", clock)
          : clock,
      ),
    );
    clearInterval(timer);
    if (s.busy) {
      timer = setInterval(() => {
        clock.textContent = seconds();
      }, 100);
    }
  }

  function drawBanner() {
    const { error, failure } = ctx.get("status");
    const parts = [];
    if (ctx.gone) {
      parts.push(
        notice(
          "sv-info",
          "gone",
          "No kernel answers here: it was restarted, shut down, or never ran for this copy. " +
            "What is shown is its last answer; run the cell again to go on.",
        ),
      );
    }
    if (error && (error.place === "internal" || error.place === "plan")) {
      parts.push(notice("sv-error", "error", error.message, error.detail));
    }
    if (failure && failure.kind !== "CompileStopped") {
      parts.push(
        notice(
          "sv-warning",
          "failure",
          `${failure.kind}: ${failure.message}`,
          failure.stderr,
          h("button", { class: "sv-btn", id: "recompile", onclick: () => ctx.edit({ op: "recompile" }) }, "try again"),
        ),
      );
    } else if (failure) {
      parts.push(
        notice(
          "sv-info",
          "failure",
          failure.message,
          "",
          h("button", { class: "sv-btn", id: "recompile", onclick: () => ctx.edit({ op: "recompile" }) }, "compile"),
        ),
      );
    }
    fill(banner, parts);
  }

  let wasBusy = false;
  ctx.on("head", drawNumbers);
  ctx.on("mesh", drawNumbers);
  ctx.on("status", () => {
    const s = ctx.get("status");
    if (s.busy && (!wasBusy || s.status === "propagating")) started = performance.now();
    wasBusy = s.busy;
    drawLevel();
    drawBanner();
  });
  drawNumbers();
  drawLevel();
  drawBanner();
  ctx.on("gone", drawBanner);
  const watch = new ResizeObserver(fit);
  watch.observe(numbers.parentElement);
  return () => {
    clearInterval(timer);
    watch.disconnect();
  };
}

export function notice(kind, id, message, detail, ...more) {
  return h(
    "div",
    { class: `sv-notice ${kind}`, id, role: "alert" },
    h("span", {}, message),
    more,
    detail ? h("details", {}, h("summary", {}, "details"), h("pre", {}, detail)) : null,
  );
}

// What stands where the kernel has not said anything yet.
export function waiting(ctx) {
  return h(
    "p",
    { class: "sv-empty" },
    ctx.gone
      ? "No kernel answers here, and this was not on the screen when one did; run the cell again."
      : "The kernel is asked; it answers when it has ended what it is doing.",
  );
}
