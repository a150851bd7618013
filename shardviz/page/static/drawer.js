// @ts-check
// The drawer beside the views, closed until a person selects something: its shard map, its notations, why.
import { Constrain } from "./constrain.js";
import { keyed } from "./dom.js";
import { Shards } from "./panes.js";
import { ui, useTraits } from "./parts.js";
import { useLayoutEffect, useState } from "./vendor/preact.js";
import { Why } from "./why.js";

export function Drawer() {
  const ctx = useTraits("why");
  const [open, show] = useState(false);
  const asks = Boolean(ctx.get("why").name);
  useLayoutEffect(() => {
    if (asks) show(true);
  }, [asks]);
  ctx.openDrawer = () => show(true);

  function close() {
    if (asks) ctx.edit({ op: "close_why" });
    show(false);
    ctx.root.focus({ preventScroll: true });
  }

  return ui`<aside class="sv-drawer" data-testid="drawer" aria-label="what is selected" hidden=${!open}
        onkeydown=${(e) => keyed(e, { Escape: close })}>
      <button class="sv-drawerclose" data-testid="drawer-close" title="close (Escape)" aria-label="close"
          onclick=${close}>✕</button><div class="sv-drawerbody" hidden=${asks}><${Constrain} /><${Shards} small /></div>
      <${Why} /></aside>`;
}
