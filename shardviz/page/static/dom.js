// @ts-check
// Elements that are there already.

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
 * What had the focus may be gone with an answer, as a mend that was taken: then the page itself has it, for its keys.
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
