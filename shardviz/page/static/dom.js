// @ts-check
// Elements that are there already, and what is pressed or pointed at in them.

/**
 * The element that has the focus, also inside a shadow root.
 * @param {Element} el any element of the page
 */
export function focused(el) {
  return /** @type {Document | ShadowRoot} */ (el.getRootNode()).activeElement;
}

/**
 * The element under `el` with a test id.
 * @param {Element} el
 * @param {string} id
 * @returns {HTMLElement | null}
 */
export function find(el, id) {
  return el.querySelector(`[data-testid="${CSS.escape(id)}"]`);
}

/**
 * What had the focus may be gone with an answer, as a fix that was taken: then the page itself has it, for its keys.
 * Returns how to stop that.
 * @param {HTMLElement} root
 */
export function keepFocus(root) {
  let had = false;
  /** @param {Event} e */
  const follow = (e) => had = e.composedPath().includes(root);
  const watch = new MutationObserver(() => {
    if (had && document.activeElement === document.body) root.focus({ preventScroll: true });
  });
  watch.observe(root, { childList: true, subtree: true });
  for (const event of ["focusin", "pointerdown"]) document.addEventListener(event, follow, true);
  return () => {
    watch.disconnect();
    for (const event of ["focusin", "pointerdown"]) document.removeEventListener(event, follow, true);
  };
}

/**
 * Does what a pressed key is for, if it is one of these, so that nobody else hears of it; unless that returns false.
 * @param {KeyboardEvent} e
 * @param {Record<string, () => unknown>} acts
 */
export function keyed(e, acts) {
  if (!Object.hasOwn(acts, e.key) || acts[e.key]() === false) return;
  e.preventDefault();
  e.stopPropagation();
}

/**
 * Tells of the element with a selector that is pointed at or has the focus, and when none is any more; returns how to stop.
 * @param {HTMLElement} root
 * @param {string} selector
 * @param {(found: HTMLElement | null) => void} tell
 */
export function pointedAt(root, selector, tell) {
  const over = (/** @type {Event} */ e) => {
    const target = e.composedPath()[0];
    tell(target instanceof Element ? target.closest(selector) : null);
  };
  const events = { mouseover: over, focusin: over, mouseleave: () => tell(null), focusout: () => tell(null) };
  for (const [name, listener] of Object.entries(events)) root.addEventListener(name, listener);
  return () => {
    for (const [name, listener] of Object.entries(events)) root.removeEventListener(name, listener);
  };
}
