// The headline: what moves, how often, memory, problems; and at which level of truth, how fresh.
import { h, fill } from "./dom.js";
import { axesChips } from "./chips.js";

const LEVELS = {
  propagated: "Shardy's propagation: shardings are sure, collectives are a prediction",
  partitioned: "XLA's partitioner: the collectives as it makes them",
  compiled: "the whole compiler: collectives and memory plan",
};

function kpi(label, id, ...value) {
  return h("div", { class: "sv-kpi", id }, h("small", {}, label), h("div", {}, value));
}

export function head(ctx, el) {
  const numbers = h("div", { class: "sv-kpis" });
  const level = h("div", { class: "sv-level", id: "level", role: "status", "aria-live": "polite" });
  const banner = h("div", { class: "sv-banners" });
  el.append(h("div", { class: "sv-head" }, numbers, level), banner);
  let started = performance.now();
  let timer = null;

  function drawNumbers() {
    const data = ctx.get("head");
    const moved = data.moved.slice(0, 4).map((m) => h("span", { class: "sv-moved", title: m.title }, axesChips(ctx, m.axes), " ", h("b", {}, m.text)));
    const rest = data.moved.length - 4;
    fill(numbers,
      h("div", { class: "sv-title" }, h("h1", {}, data.program), h("small", {}, data.subtitle)),
      kpi("moved per device", "kpi-moved", moved.length ? moved : h("b", {}, "nothing"), rest > 0 && h("small", {}, ` + ${rest} more`)),
      kpi("collectives", "kpi-collectives", h("b", {}, data.collectives), h("span", { class: "sv-soft" }, ` · ${data.runs}`)),
      data.memory_text
        ? kpi(`arguments + temporaries, ${data.memory_target}`, "kpi-memory", h("b", {}, data.memory_text))
        : kpi("arguments", "kpi-memory", h("b", {}, data.arguments), h("span", { class: "sv-soft" }, " per device")),
      kpi("problems", "kpi-problems", data.problems
        ? h("button", { class: "sv-link sv-warn", onclick: () => ctx.setTab("problems") }, h("b", {}, data.problems)) : h("b", {}, "0")),
      data.changed ? kpi("changed by the last edit", "kpi-changed", h("button", {
        class: "sv-link", onclick: () => { ctx.query({ changed: true }); ctx.setTab("values"); },
      }, h("b", {}, data.changed), ` of ${data.values} values`)) : null,
    );
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
        s.busy ? [s.message || "working", " · ", clock, " ", h("button", {
          class: "sv-stop", id: "stop", title: "stop the compile; what is known stays", onclick: () => ctx.edit({ op: "stop" }),
        }, "■ stop")] : trouble ? h("span", { class: "sv-warn" }, s.status, " after ", clock) : clock));
    clearInterval(timer);
    if (s.busy) timer = setInterval(() => { clock.textContent = seconds(); }, 100);
  }

  function drawBanner() {
    const { error, failure } = ctx.get("status");
    const parts = [];
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
  return () => clearInterval(timer);
}

export function notice(kind, id, message, detail, ...more) {
  return h("div", { class: `sv-notice ${kind}`, id, role: "alert" }, h("span", {}, message), more,
    detail ? h("details", {}, h("summary", {}, "details"), h("pre", {}, detail)) : null);
}
