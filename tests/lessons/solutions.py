"""For each puzzle that is code: a right solution besides its own, and wrong ones, with what is said of each."""

RING = 'following = [(i, (i + 1) % 8) for i in range(8)]\n    me = jax.lax.axis_index("ring")'
BACK = 'before = [(i, (i - 1) % 8) for i in range(8)]\n    me = jax.lax.axis_index("ring")'

RIGHT = {
    "all-gather": f"""
def scanned_the_other_way(x):
    {BACK}

    def turn(x, t):
        x = jax.lax.ppermute(x, "ring", before)
        return x, x

    _, others = jax.lax.scan(turn, x, jnp.arange(7))
    rows = jnp.concatenate([x[None], others])  # those of device me, me + 1, ...
    return jnp.roll(rows, me, axis=0).reshape(16, -1)
""",
    "ring-all-reduce": f"""
def with_loops(x):
    {RING}
    parts = x.reshape(8, 128)

    def add(t, total):
        return jax.lax.ppermute(total, "ring", following) + parts[(me - 2 - t) % 8]

    def put(t, carried):
        total, whole = carried
        total = jax.lax.ppermute(total, "ring", following)
        return total, whole.at[(me - 1 - t) % 8].set(total)

    total = jax.lax.fori_loop(0, 7, add, parts[(me - 1) % 8])
    return jax.lax.fori_loop(0, 7, put, (total, jnp.zeros_like(parts).at[me].set(total)))[1].reshape(-1)
""",
    "reduce-scatter": f"""
def the_other_way(x):
    {BACK}
    mine = lambda i: jax.lax.dynamic_slice_in_dim(x[0], (i % 8) * 128, 128)
    total = mine(me + 1)
    for t in range(2, 9):
        total = jax.lax.ppermute(total, "ring", before) + mine(me + t)
    return total
""",
    "hidden-gather": f"""
def stacked(x, w):
    {BACK}

    def turn(x, t):
        return jax.lax.ppermute(x, "ring", before), x @ w

    x, products = jax.lax.scan(turn, x, jnp.arange(7))
    products = jnp.concatenate([products, (x @ w)[None]])
    return jnp.roll(products, me, axis=0).reshape(64, 128)
""",
    "fsdp": """
def by_autodiff(x, w):
    def forward(w):
        return x @ jax.lax.all_gather(w, "data").reshape(128, 256)

    y, backward = jax.vjp(forward, w)
    return y, backward(y)[0]
""",
    "tensor-parallel": """
def in_two_steps(x, w1, w2):
    terms = jnp.einsum("bh,hd->bd", jnp.maximum(x @ w1, 0), w2)
    rows = jax.lax.psum_scatter(terms, "model", scatter_dimension=0, tiled=True)
    return jax.lax.all_gather(rows, "model", tiled=True)
""",
    "vocabulary-loss": """
def together(logits, labels):
    columns = jnp.arange(64) + 64 * jax.lax.axis_index("vocab")
    largest = jax.lax.pmax(logits.max(axis=1), "vocab")
    picked = jnp.where(columns == labels[:, None], logits - largest[:, None], 0).sum(axis=1)
    total = jnp.exp(logits - largest[:, None]).sum(axis=1)
    total, picked = jax.lax.psum(jnp.stack([total, picked]), "vocab")
    return jnp.log(total) - picked
""",
    "ring-attention": """
def with_a_running_maximum(q, k, v):
    following = [(i, (i + 1) % 8) for i in range(8)]
    most, above, below = jnp.full((8, 1), -jnp.inf), jnp.zeros((8, 32)), jnp.zeros((8, 1))
    for turn in range(8):
        scores = q @ k.T
        higher = jnp.maximum(most, scores.max(axis=1, keepdims=True))
        weight, old = jnp.exp(scores - higher), jnp.exp(most - higher)
        above, below, most = above * old + weight @ v, below * old + weight.sum(axis=1, keepdims=True), higher
        if turn < 7:
            k, v = jax.lax.ppermute((k, v), "seq", following)
    return above / below
""",
    "pipeline": """
def by_counting(stage, stages, micro):
    order, forward, backward = [], 0, 0
    while backward < micro:
        if forward < micro and forward - backward < stages - stage:
            order.append(f"F{forward}")
            forward += 1
        else:
            order.append(f"B{backward}")
            backward += 1
    return order
""",
    "experts": """
def tiled(x, w):
    there = jax.lax.all_to_all(x, "expert", 0, 0, tiled=True)
    return jax.lax.all_to_all(there @ w[0], "expert", 0, 0, tiled=True)
""",
}

WRONG = {
    "all-gather": [
        ("def f(x):\n    return x", r"The result has the shape \[2, 128\] on each device, expected \[16, 128\]\."),
        (
            "def f(x):\n    return jnp.tile(x, (8, 1))",
            r"wrong values on 8 of 8 devices. Device 0 first differs at \[2, 0\]: .*expected",
        ),
        (
            'def f(x):\n    return jax.lax.all_gather(x, "ring", tiled=True)',
            "calls `all_gather`, which this puzzle forbids",
        ),
        ("def f(x):\n    while True:\n        x = x + 1", "a Python loop in it never ends"),
        ("def f(x):\n    return jnp.tile(x, (8, 1)).astype(jnp.bfloat16)", "The result is bfloat16, expected float32"),
        ("def f(x):\n    raise SystemExit", "The function ends its process"),
        (
            'def f(x):\n    swap = lambda x: jax.lax.ppermute(x, "ring", [(0, 1), (1, 0)])\n'
            '    return jnp.tile(jax.lax.cond(jax.lax.axis_index("ring") == 0, swap, lambda x: x, x), (8, 1))',
            r"only some devices call the collective and wait for the others \(deadlock\)",
        ),
        (
            f"""
def directly(x):
    {RING}
    rows = jnp.zeros((8, *x.shape)).at[me].set(x)
    for t in range(1, 8):
        far = jax.lax.ppermute(x, "ring", [(i, (i + t) % 8) for i in range(8)])
        rows = rows.at[(me - t) % 8].set(far)
    return rows.reshape(16, -1)
""",
            r"values are right, but a device sends 16\.4 kB: 2\.29 x par \(7\.17 kB\)",
        ),
    ],
    "ring-all-reduce": [
        ('def f(x):\n    return jax.lax.psum(x, "ring")[0]', r"calls `psum` \(as `pmean` does\), which this"),
        (
            f"""
def whole_rows(x):
    {RING}
    total = x
    for t in range(7):
        x = jax.lax.ppermute(x, "ring", following)
        total = total + x
    return total[0]
""",
            r"values are right, but a device sends 28\.7 kB: 4\.00 x par \(7\.17 kB\)",
        ),
        (
            "def f(x):\n    return jax.lax.while_loop(lambda x: x[0] < jnp.inf, lambda x: x * 0, x[0])",
            r"The program did not end within 5 s: a loop in it never ends\.$",
        ),
        (
            'def f(x):\n    return jax.lax.ppermute(x, "rings", [(0, 1)])[0]',
            "Line 2 of the function raises NameError: .*rings",
        ),
        ("def f(x):\n    x[0].sum()", "The function returns nothing, expected 1. Is the `return` missing?"),
    ],
    "reduce-scatter": [
        ('def f(x):\n    return jax.lax.psum_scatter(x[0], "ring", tiled=True)', "calls `psum_scatter`"),
        (
            f"""
def all_then_mine(x):
    {RING}
    total = x
    for t in range(7):
        x = jax.lax.ppermute(x, "ring", following)
        total = total + x
    return total.reshape(8, 128)[me]
""",
            r"sends 28\.7 kB: 8\.00 x par \(3\.58 kB\)",
        ),
        (
            f"""
def a_turn_less(x):
    {RING}
    parts = x.reshape(8, 128)
    total = parts[(me - 1) % 8]
    for t in range(1, 7):
        total = jax.lax.ppermute(total, "ring", following) + parts[(me - 1 - t) % 8]
    return total
""",
            "wrong values on 8 of 8 devices",
        ),
        ("def f(x):\n    return x.sum(axis=0)", r"shape \[1024\] on each device, expected \[128\]"),
        ("def f(x):\n    return f(x)", "calls itself without end"),
    ],
    "hidden-gather": [
        ('def f(x, w):\n    return jax.lax.all_gather(x, "ring", tiled=True) @ w', "calls `all_gather`"),
        (
            f"""
def collected_first(x, w):
    {RING}
    rows = jnp.zeros((8, *x.shape)).at[me].set(x)
    for t in range(1, 8):
        x = jax.lax.ppermute(x, "ring", following)
        rows = rows.at[(me - t) % 8].set(x)
    return rows.reshape(64, 256) @ w
""",
            r"but a device holds 65\.5 kB in one array: 2\.00 x par \(32\.8 kB in one array\)",
        ),
        (
            f"""
def never_handed_on(x, w):
    {RING}
    y = jnp.zeros((8, 8, 128))
    for t in range(8):
        y = y.at[(me - t) % 8].set(x @ w)
    return y.reshape(64, 128)
""",
            "wrong values on 8 of 8 devices. Device 0 first differs at",
        ),
        ("def f(x, w):\n    return x @ w", r"shape \[8, 128\] on each device, expected \[64, 128\]"),
        ("def f(x):\n    return x", "The function raises TypeError: .*takes 1 positional argument but 2 were given"),
    ],
    "fsdp": [
        ('def f(x, w):\n    return x @ jax.lax.all_gather(w, "data", tiled=True)', "returns 1 array, expected 2"),
        (
            'def f(x, w):\n    whole = jax.lax.all_gather(w, "data", tiled=True)\n    y = x @ whole\n'
            '    return y, jax.lax.psum(x.T @ y, "data")',
            "Result 1 has the shape|calls `psum`",
        ),
        (
            'def f(x, w):\n    whole = jax.lax.all_gather(w, "data", tiled=True)\n'
            "    y = x @ whole\n    return y, x.T @ y",
            r"Result 1 has the shape \[128, 256\] on each device, expected \[16, 256\]",
        ),
        (
            'def f(x, w):\n    whole = jax.lax.all_gather(w, "data", tiled=True)\n    y = x @ whole\n'
            '    return y, (x.T @ y).reshape(8, 16, 256)[jax.lax.axis_index("data")]',
            'The result "the gradient" has wrong values on 8 of 8 devices',
        ),
        (
            "def f(x, w):\n    whole = ...\n    return x @ whole, w",
            "Line 3 of the function still has `...` where your code goes",
        ),
        (
            'def f(x, w):\n    whole = jax.lax.all_gather(w, "data", tiled=True)\n    y = x @ whole\n'
            '    whole = jax.lax.all_gather(w + 0, "data", tiled=True) * 1\n'
            '    again = jax.lax.all_gather(whole[::8] * 2, "data", tiled=True)\n'
            '    return y, jax.lax.psum_scatter(x.T @ y + 0 * again, "data", tiled=True)',
            r"values are right, but a device sends .*x par",
        ),
    ],
    "tensor-parallel": [
        ("def f(x, w1, w2):\n    return jax.nn.relu(x @ w1) @ w2", "wrong values on 8 of 8 devices"),
        (
            'def f(x, w1, w2):\n    return jax.nn.relu(jax.lax.psum(x @ w1, "model")) @ w2',
            'The result "y" has wrong values on 8 of 8 devices',
        ),
        (
            'def f(x, w1, w2):\n    hidden = jax.lax.all_gather(jax.nn.relu(x @ w1), "model", axis=1, tiled=True)\n'
            '    return hidden @ jax.lax.all_gather(w2, "model", tiled=True)',
            r"values are right, but a device (sends 71\.7 kB|holds 65\.5 kB in one array): 1[06]\.00 x par",
        ),
        ('def f(x, w1, w2):\n    return jax.lax.psum(x @ w1, "data") @ w2', "Line 2 of the function raises NameError"),
        (
            "def f(x, w1, w2):\n    y = jax.nn.relu(x @ w1) @ w2\n"
            '    return jax.lax.psum_scatter(y, "model", tiled=True)',
            r"shape \[2, 64\] on each device, expected \[16, 64\]",
        ),
    ],
    "vocabulary-loss": [
        (
            'def f(logits, labels):\n    logits = jax.lax.all_gather(logits, "vocab", axis=1, tiled=True)\n'
            "    return jax.nn.logsumexp(logits, axis=1) - logits[jnp.arange(32), labels]",
            "calls `all_gather`, which this puzzle forbids",
        ),
        (
            'def f(logits, labels):\n    at = 64 * jax.lax.axis_index("vocab")\n'
            "    whole = jax.lax.dynamic_update_slice(jnp.zeros((32, 512)), logits, (0, at))\n"
            '    whole = jax.lax.psum(whole, "vocab")\n'
            "    return jax.nn.logsumexp(whole, axis=1) - whole[jnp.arange(32), labels]",
            r"values are right, but a device sends 115 kB: 1\d\d\.\d+ x par \(672 B\)",
        ),
        (
            'def f(logits, labels):\n    total = jax.lax.psum(jnp.exp(logits).sum(axis=1), "vocab")\n'
            '    here = labels[:, None] == jnp.arange(64) + 64 * jax.lax.axis_index("vocab")\n'
            '    return jnp.log(total) - jax.lax.psum(jnp.where(here, logits, 0).sum(axis=1), "vocab")',
            "wrong values on 8 of 8 devices. Device 0 first differs at .*: inf, expected",
        ),
        (
            "def f(logits, labels):\n    return jax.nn.logsumexp(logits, axis=1)",
            'The result "losses" has wrong values on',
        ),
        (
            "def f(logits, labels):\n    if logits.max() > 0:\n        return labels\n    return labels",
            "Line 2 of the function raises TracerBoolConversionError",
        ),
    ],
    "ring-attention": [
        (
            'def f(q, k, v):\n    k, v = (jax.lax.all_gather(each, "seq", tiled=True) for each in (k, v))\n'
            "    return jax.nn.softmax(q @ k.T, axis=1) @ v",
            "calls `all_gather`",
        ),
        ("def f(q, k, v):\n    return jax.nn.softmax(q @ k.T, axis=1) @ v", "wrong values on 8 of 8 devices"),
        (
            """
def each_turn_alone(q, k, v):
    following = [(i, (i + 1) % 8) for i in range(8)]
    result = 0
    for t in range(8):
        result = result + jax.nn.softmax(q @ k.T, axis=1) @ v / 8
        k, v = jax.lax.ppermute((k, v), "seq", following)
    return result
""",
            'The result "the result" has wrong values on 8 of 8 devices',
        ),
        (
            """
def values_stay(q, k, v):
    following = [(i, (i + 1) % 8) for i in range(8)]
    above, below = 0, 0
    for t in range(8):
        weight = jnp.exp(q @ k.T)
        above, below = above + weight @ v, below + weight.sum(axis=1, keepdims=True)
        k = jax.lax.ppermute(k, "seq", following)
    return above / below
""",
            "wrong values on 8 of 8 devices",
        ),
        (
            """
def kept(q, k, v):
    following = [(i, (i + 1) % 8) for i in range(8)]
    keys, values = [k], [v]
    for t in range(7):
        k, v = jax.lax.ppermute((k, v), "seq", following)
        keys, values = [*keys, k], [*values, v]
    return jax.nn.softmax(q @ jnp.concatenate(keys).T, axis=1) @ jnp.concatenate(values)
""",
            r"but a device holds 8\.19 kB in one array: 8\.00 x par \(1\.02 kB in one array\)",
        ),
    ],
    "pipeline": [
        (
            'def f(stage, stages, micro):\n    return [w + str(m) for w in "FB" for m in range(micro)]',
            r"but it keeps 8 microbatches at once on a stage: 2\.00 x par",
        ),
        (
            'def f(stage, stages, micro):\n    return [w + str(m) for m in range(micro) for w in "FB"]',
            r"but it takes 64 turns: 2\.91 x par \(22 turns\)",
        ),
        (
            "def f(stage, stages, micro):\n    return [\n"
            '        w + str(m) for m in range(micro) for w in ("BF" if stage else "FB")\n    ]',
            "Deadlock in turn 1: stage 0 waits with B0 for B0 of stage 1, and no stage can go on",
        ),
        ('def f(stage, stages, micro):\n    return ["F0", "B0"]', "Stage 0 never does B1"),
        (
            "def f(stage, stages, micro):\n    return None",
            "Stage 0: the function returns None, expected a list such as",
        ),
        ('def f(stage, stages, micro):\n    return ["F8"]', "Stage 0 has 'F8'; the work is F0 to F7, B0 to B7"),
    ],
    "experts": [
        (
            'def f(x, w):\n    w = jax.lax.all_gather(w, "expert", tiled=True)\n'
            "    return (x.reshape(8, 2, 32) @ w).reshape(16, 32)",
            "calls `all_gather`, which this puzzle forbids",
        ),
        ("def f(x, w):\n    return x @ w[0]", r"wrong values on \d of 8 devices"),
        (
            'def f(x, w):\n    return jax.lax.all_to_all(x, "expert", 0, 0, tiled=True) @ w[0]',
            'The result "the tokens" has wrong values on 8 of 8 devices',
        ),
        (
            'def f(x, w):\n    x = jax.lax.all_to_all(x.reshape(8, 2, 32), "expert", 0, 0) @ w\n'
            '    return jax.lax.all_to_all(x, "expert", 0, 0)',
            r"shape \[8, 2, 32\] on each device, expected \[16, 32\]",
        ),
        (
            """
def weights_go_round(x, w):
    following = [(i, (i + 1) % 8) for i in range(8)]
    me = jax.lax.axis_index("expert")
    tokens = x.reshape(8, 2, 32)
    for t in range(8):
        tokens = tokens.at[(me - t) % 8].set(tokens[(me - t) % 8] @ w[0])
        w = jax.lax.ppermute(w, "expert", following)
    return tokens.reshape(16, 32)
""",
            r"values are right, but a device sends 28\.7 kB: 8\.00 x par",
        ),
    ],
}
