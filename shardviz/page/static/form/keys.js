// @ts-check
// An invisible widget with a form's keyboard behaviour: typed keys do not trigger notebook shortcuts, Enter presses the
// primary button, and a new result is scrolled into view.

/** @param {Event} event */
const stop = (event) => event.stopPropagation();

/** In the capture phase: ipywidgets stops the key at its field.
 * @param {KeyboardEvent} event */
function submit(event) {
  const field = /** @type {HTMLElement} */ (event.target).closest(".widget-text input, .widget-radio-box input");
  if (event.key !== "Enter" || event.isComposing || !(field instanceof HTMLElement)) return;
  event.preventDefault();
  field.blur(); // the field says what was typed before the button is pressed
  field.focus();
  /** @type {HTMLElement | null} */ (field.closest(".shardviz-exercise")?.querySelector("button.mod-primary"))?.click();
}

/** @param {{el: HTMLElement}} view */
function render({ el }) {
  const timer = setInterval(() => {
    const form = /** @type {HTMLElement | null} */ (el.closest(".shardviz-exercise"));
    const result = form?.querySelector(".shardviz-result");
    if (!form || !result) return;
    clearInterval(timer);
    form.addEventListener("keydown", submit, true);
    form.addEventListener("keydown", stop);
    const show = () => result.scrollIntoView({ block: "nearest" });
    new MutationObserver(show).observe(result, { childList: true, subtree: true });
  }, 50);
  return () => clearInterval(timer);
}

export default { render };
