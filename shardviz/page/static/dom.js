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
