// What the page uses of preact and htm. Only the type checker reads this file.

/** What a template gives, and what can stand in one. */
// deno-lint-ignore no-explicit-any
export type View = any;

/** What stands in a template; of a listener, the event needs no type of its own. */
// deno-lint-ignore no-explicit-any
type Inside = ((e: any) => unknown) | object | string | number | boolean | null | undefined;
export function html(strings: TemplateStringsArray, ...values: Inside[]): View;
export function render(view: View, parent: Element | DocumentFragment): void;

export interface Shared<T> {
  Provider(props: { value: T; children?: View }): View;
}
export function createContext<T>(value: T): Shared<T>;
export function useContext<T>(shared: Shared<T>): T;

export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useReducer<T, A = void>(step: (before: T, action: A) => T, first: T): [T, (action: A) => void];
export function useRef<T>(first: T): { current: T };
export function useMemo<T>(make: () => T, on: unknown[]): T;
export function useEffect(act: () => void | (() => void), on?: unknown[]): void;
export function useLayoutEffect(act: () => void | (() => void), on?: unknown[]): void;
