"""A plugin with recurrences: right ones in other ways of computing, and mistakes of honest authors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from attnbench import Backend, hookimpl
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.recurrence import named_inputs

MISTAKES = {
    "decay_after_the_update": "gated",
    "decay_of_the_last_head": "lightning",
    "decay_as_a_power_of_two": "gated",
    "decay_of_the_first_head": "gated",
    "decay_of_the_next_head": "gated",
    "decay_of_the_step_before": "gated",
    "decay_left_out_of_the_initial_state": "gated",
    "decay_in_the_correction_forgotten": "gated_delta",
    "decay_of_the_first_feature": "gated_delta_channels",
    "decays_lost_between_chunks": "gated_delta",
    "beta_twice": "delta",
    "beta_on_the_value_alone": "delta",
    "beta_forgotten": "delta",
    "beta_of_the_next_step": "gated_delta",
    "correction_forgotten": "delta",
    "correction_added": "delta",
    "correction_by_the_state_after": "gated_delta",
    "state_transposed": "linear",
    "state_transposed_at_the_start": "linear",
    "state_of_the_neighbour": "gated",
    "state_before_the_last_step": "linear",
    "state_with_the_scale": "linear",
    "state_in_bfloat16": "gated_delta",
    "state_of_zeros_at_the_start": "gated",
    "state_as_it_was": "linear",
    "read_before_the_update": "linear",
    "scale_forgotten": "linear",
    "scale_twice": "linear",
    "heads_tiled": "linear",
    "tail_of_the_last_chunk_dropped": "linear",
    "outputs_kept_by_address": "linear",
    "a_and_b_exchanged": "rwkv7",
    "removed_after_the_decay": "rwkv7",
    "nothing_removed": "rwkv7",
    "keys_of_length_one": "linear",
    "keys_of_length_one_in_each_chunk": "gated_delta",
    "queries_of_length_one": "linear",
    "normalised_by_the_sum_of_keys": "linear",
    "rate_of_the_first_key_feature": "selective",
    "rate_of_the_next_value_feature": "selective",
    "dt_left_out_of_the_value": "selective",
    "dt_of_the_step_before": "selective",
}
"""By name, the rule of a case that shows it."""

KNOWN = {
    "decay_after_the_update": "decay_after_the_update",
    "decay_as_a_power_of_two": "decay_as_a_power_of_two",
    "decay_of_the_step_before": "decay_of_the_step_before",
    "decay_of_the_first_head": "decay_of_the_first_head",
    "decay_left_out_of_the_initial_state": "first_decay_left_out",
    "decay_of_the_first_feature": "decay_of_the_first_feature",
    "decays_lost_between_chunks": "decay_left_out_between_chunks_16",
    "decay_in_the_correction_forgotten": "correction_before_the_decay",
    "beta_twice": "beta_twice",
    "beta_on_the_value_alone": "beta_on_the_value_alone",
    "beta_forgotten": "beta_left_out",
    "correction_forgotten": "correction_left_out",
    "correction_added": "correction_added",
    "state_transposed": "state_transposed",
    "state_transposed_at_the_start": "initial_state_transposed",
    "state_of_the_neighbour": "state_of_another_sequence",
    "state_with_the_scale": "scale_in_the_state",
    "state_of_zeros_at_the_start": "initial_state_left_out",
    "state_as_it_was": "state_not_updated",
    "read_before_the_update": "read_before_the_update",
    "scale_forgotten": "scale_left_out",
    "scale_twice": "scale_twice",
    "heads_tiled": "heads_modulo",
    "tail_of_the_last_chunk_dropped": "tail_not_added_32",
    "a_and_b_exchanged": "a_and_b_exchanged",
    "removed_after_the_decay": "found_after_the_decay",
    "nothing_removed": "nothing_removed",
    "keys_of_length_one": "keys_of_length_one",
    "queries_of_length_one": "queries_of_length_one",
    "rate_of_the_first_key_feature": "rate_of_the_first_feature",
    "dt_left_out_of_the_value": "dt_left_out_of_the_value",
}
"""The name that a diagnosis has for some. In a case of 37 steps whole chunks of 32 and of 16 are alike."""

CHUNK = 16
RATE = 4
"""The place of the rates, (H, D, Dv), among the inputs of the selective rule."""

PACKED_MISTAKES = {
    "state_of_the_next_sequence": ("out", 0),
    "state_carried_over": ("state", 1),
    "last_chunk_crosses_sequences": ("state", 0),
    "empty_sequence_has_a_state_of_zeros": ("state", 1),
    "states_in_the_other_order": ("state", 0),
    "equal_sequences_exchanged": ("out", 2),
    "states_of_sequences_with_steps_in_a_row": ("state", 1),
    "heads_of_the_common_input_move_on": ("out", 2),
    "first_decay_with_that_of_the_sequence_before": ("out", 2),
}
"""In a batch q37_q0_2q5_q64_q65, by name, the part and the first sequence that are wrong."""

OF_COMMON_INPUTS, OF_DECAYS = list(PACKED_MISTAKES)[-2:]
"""Mistakes that rules with shared decays or rates alone can have, and those with a decay for each step."""


POOLED_MISTAKES = {
    "state_of_the_neighbouring_slot": "the output 'out': ",
    "states_in_the_order_of_sequences": "the output 'out': ",
    "written_at_the_number_of_the_sequence": "sequence 0: the output 'state': ",
    "written_at_the_next_slot_too": "the output 'state': slot ",
    "others_zeroed": "the output 'state': slot ",
    "others_overwritten_by_the_last": "the output 'state': slot ",
}
"""In the same batch with a pool of states, by name, what the verdict says."""


def prepare(setup, mistake=""):
    import torch

    case, named = setup.case, named_inputs(setup)
    remembered = {}
    wide = torch.float64 if case.dtype == "float64" else torch.float32

    def call(*inputs):
        if mistake == "outputs_kept_by_address" and inputs[0].data_ptr() in remembered:
            return tuple(x.clone() for x in remembered[inputs[0].data_ptr()])
        given = named(*inputs)
        q, k, v, state = (given[name] for name in ("q", "k", "v", "past_state"))
        if mistake == "heads_tiled":
            order = torch.arange(case.H) % case.Hkv * case.group
            q, k = q[:, order], k[:, order]
        if mistake == "state_transposed_at_the_start":
            state = state.mT
        if mistake == "state_of_zeros_at_the_start":
            state = torch.zeros_like(state)
        if mistake == "state_of_the_neighbour":
            state = state.roll(1, 0)
        begun = state
        if mistake == "keys_of_length_one":
            k = k / k.norm(dim=-1, keepdim=True)
        if mistake == "queries_of_length_one":
            q = q / q.norm(dim=-1, keepdim=True)
        decay, beta = given.get("decay"), given.get("beta")
        if decay is not None:
            kept = decay.exp2() if mistake == "decay_as_a_power_of_two" else decay.exp()
            if mistake == "decays_clamped":
                kept = kept.clamp(min=0.01)
            if mistake == "decay_of_the_last_head":
                kept = kept[:, -1:].expand_as(kept)
            if mistake == "decay_of_the_first_head":
                kept = kept[:, :1].expand_as(kept)
            if mistake == "decay_of_the_next_head":
                kept = kept.roll(1, 1)
            if mistake == "decay_of_the_step_before":
                kept = torch.cat([torch.ones_like(kept[:, :, :1]), kept[:, :, :-1]], 2)
            if mistake == "decay_left_out_of_the_initial_state":
                kept = torch.cat([torch.ones_like(kept[:, :, :1]), kept[:, :, 1:]], 2)
            if mistake == "decay_of_the_first_feature":
                kept = kept[..., :1]
        if beta is not None and mistake == "beta_of_the_next_step":
            beta = beta.roll(-1, 2)
        rate = given.get("rate")
        if rate is not None:
            dt = given["dt"]
            if mistake == "rate_of_the_first_key_feature":
                rate = rate[:, :1]
            if mistake == "rate_of_the_next_value_feature":
                rate = rate.roll(-1, 2)
            if mistake == "dt_left_out_of_the_value":
                v = v / dt
            if mistake == "dt_of_the_step_before":
                dt = torch.cat([dt[:, :, :1], dt[:, :, :-1]], 2)
        scale = case.D**-0.5
        read, last = [], case.Lq - case.Lq % CHUNK or case.Lq
        for i in range(case.Lq):
            key, value = k[:, :, i, :, None], v[:, :, i, None]
            if mistake == "tail_of_the_last_chunk_dropped" and i >= last:
                key = torch.zeros_like(key)
            if mistake == "keys_of_length_one_in_each_chunk" and i % CHUNK == 0:
                key = key / key.norm(dim=(0, 2), keepdim=True)
            fresh = state
            lost = mistake == "decays_lost_between_chunks" and i and i % CHUNK == 0
            if decay is not None and mistake != "decay_after_the_update" and not lost:
                state = kept[:, :, i, :, None] * state
            if rate is not None:
                state = (dt[:, :, i, None] * rate).exp() * state
            if "a" in given and mistake != "nothing_removed":
                a, b = (given[name][:, :, i, :, None] for name in "ab")
                if mistake == "a_and_b_exchanged":
                    a, b = b, a
                asked = state if mistake == "removed_after_the_decay" else fresh
                state = state + b * (a.mT @ asked)
            if beta is not None:
                known = fresh if mistake == "decay_in_the_correction_forgotten" else state
                known = key.mT @ known
                if mistake == "correction_forgotten":
                    known = torch.zeros_like(known)
                if mistake == "correction_added":
                    known = -known
                if mistake == "correction_by_the_state_after":
                    known = key.mT @ (state + key * value)
                written = beta[:, :, i, None]
                if mistake == "beta_on_the_value_alone":
                    value = written * value - known
                elif mistake == "beta_forgotten":
                    value = value - known
                else:
                    value = written * (value - known)
                if mistake == "beta_twice":
                    value = written * value
            before = state
            state = state + key * value
            if decay is not None and mistake == "decay_after_the_update":
                state = kept[:, :, i, :, None] * state
            if mistake == "state_in_bfloat16":
                state = state.bfloat16().to(wide)
            seen = before if mistake == "read_before_the_update" else state
            read.append((q[:, :, i, None] @ seen)[:, :, 0])
        if mistake == "normalised_by_the_sum_of_keys":
            sums = (q * k.cumsum(2)).sum(-1, keepdim=True).abs().clamp(min=1)
            read = [one / sums[:, :, i] for i, one in enumerate(read)]
        out = torch.stack(read, 2) * (1 if mistake == "scale_forgotten" else scale)
        out = out * scale if mistake == "scale_twice" else out
        left = {
            "state_transposed": state.mT.contiguous(),
            "state_before_the_last_step": before,
            "state_with_the_scale": state * scale,
            "state_as_it_was": begun,
        }.get(mistake, state)
        given_back = out.to(case_dtype(case)), left.clone()
        if mistake == "outputs_kept_by_address":
            remembered[inputs[0].data_ptr()] = tuple(x.clone() for x in given_back)
        return given_back

    return call


def right_in_two_pieces(setup):
    """Hand the state on from the first half to the second."""
    import torch

    case = setup.case
    half = case.Lq // 2
    rates = RATE if setup.rule.update.decays == "element" else None
    pieces = [prepare(replace(setup, case=replace(case, Lq=n, Lk=n))) for n in (half, case.Lq - half) if n]

    def call(*inputs):
        *steps, state = inputs
        read, start = [], 0
        for piece, length in zip(pieces, [n for n in (half, case.Lq - half) if n], strict=True):
            own = [
                x if n == rates or x.ndim == 1 else x[:, :, start : start + length]
                for n, x in enumerate(steps)
            ]
            out, state = piece(*own, state)
            read.append(out)
            start += length
        return torch.cat(read, 2), state

    return call


def right_in_float64(setup):
    """Take all steps in float64 and round once."""
    steps = prepare(replace(setup, case=replace(setup.case, dtype="float64")))

    def call(*inputs):
        out, state = steps(*(x.double() for x in inputs))
        return out.to(case_dtype(setup.case)), state.to(inputs[-1].dtype)

    return call


def right_by_heads(setup):
    """Take one head after the other, with the features in the other order."""
    steps = prepare(setup)

    def call(*inputs):
        *_, state = inputs
        flipped = [x.flip(-1) if n < 2 else x for n, x in enumerate(inputs[:-1])]
        if setup.rule.update.decays == "channel":
            flipped[3:] = [x.flip(-1) if x.ndim == 4 else x for x in flipped[3:]]
        if setup.rule.update.decays == "element":
            flipped[RATE] = flipped[RATE].flip(-2)
        out, after = steps(*flipped, state.flip(-2))
        return out, after.flip(-2)

    return call


def right_by_matrices(setup):
    """Multiply the state by a matrix that is formed in each step."""
    import torch

    case, named = setup.case, named_inputs(setup)

    def call(*inputs):
        given = named(*inputs)
        q, k, v, state = (given[name] for name in ("q", "k", "v", "past_state"))
        one, read = torch.eye(case.D, dtype=state.dtype), []
        for i in range(case.Lq):
            step = one * given["decay"][:, :, i, None].exp() if "decay" in given else one
            if "a" in given:
                step = step + given["b"][:, :, i, :, None] * given["a"][:, :, i, None]
            key = k[:, :, i, :, None]
            added = key
            if "beta" in given:
                added = given["beta"][:, :, i, None] * key
                step = (one - added * key.mT) @ step
            state = step @ state + added * v[:, :, i, None]
            read.append((q[:, :, i, None] @ state)[:, :, 0])
        return (torch.stack(read, 2) * case.D**-0.5).to(case_dtype(case)), state

    return call


def by_powers(setup):
    """Take all steps at once, and solve the triangular system by powers of its matrix."""
    import torch

    case, named = setup.case, named_inputs(setup)

    def call(*inputs):
        given = named(*inputs)
        q, k, beta, state = (given[name] for name in ("q", "k", "beta", "past_state"))
        power = -(beta * k @ k.mT).tril(-1)
        inverse = torch.eye(case.Lq, dtype=k.dtype) + power
        for _ in range(case.Lq.bit_length()):
            power = power @ power
            inverse = inverse + inverse @ power
        added = inverse @ (beta * (given["v"] - k @ state))
        out = q @ state + (q @ k.mT).tril() @ added
        return (out * case.D**-0.5).to(case_dtype(case)), state + k.mT @ added

    return call


ON_STRESS_INPUTS = {"decays_clamped": ("forgets", "gated_delta"), "by_powers": ("same_key", "delta")}
"""By name, the kind of inputs that alone shows it, and the rule of a case."""
BY_MATRICES = "by_matrices"
DECLARED = "rounded_for_products"
"""Rounds the state to bfloat16, and declares it."""
RIGHT = {"in_two_pieces": right_in_two_pieces, "in_float64": right_in_float64, "by_heads": right_by_heads}


def packed(setup, mistake=""):
    """Take one packed sequence after the other."""
    import torch

    def common(place, x):
        """Return whether an input, a decay or rates, is that of all sequences."""
        return x.ndim == 1 or (setup.rule.update.decays == "element" and place == RATE)

    def alone(length):
        sizes = {"batch": "", "storage": "dense", "B": 1, "Lq": length, "Lk": length}
        return prepare(replace(setup, case=replace(setup.case, **sizes)))

    def call(*inputs):
        *steps, state, ends = inputs
        out, after = torch.empty_like(steps[2]), state.clone()
        if mistake == "state_of_the_next_sequence":
            state = state.roll(-1, 0)
        if mistake == OF_DECAYS:
            first = ends[:-1][(ends.diff() > 0) & (ends[:-1] > 0)].long()
            steps[3] = steps[3].index_add(0, first, steps[3][first - 1])
        for number, (start, end) in enumerate(pairwise(ends.tolist())):
            stop, begun = end, state[number]
            if mistake == "state_carried_over" and number:
                begun = after[number - 1]
            if mistake == "last_chunk_crosses_sequences":
                stop = min(len(out), start - (start - end) // CHUNK * CHUNK)
            if start == end:
                zeros = mistake == "empty_sequence_has_a_state_of_zeros"
                after[number] = torch.zeros_like(begun) if zeros else begun
                continue
            moved = number if mistake == OF_COMMON_INPUTS else 0
            own = [
                x.roll(moved, 0) if common(n, x) else x[start:stop].transpose(0, 1)[None]
                for n, x in enumerate(steps)
            ]
            read, left = alone(stop - start)(*own, begun[None])
            out[start:end] = read[0, :, : end - start].transpose(0, 1)
            after[number] = left[0]
        if mistake == "states_of_sequences_with_steps_in_a_row":
            filled = after[ends.diff() > 0]
            after = torch.cat([filled, state[len(filled) :]])
        if mistake == "states_in_the_other_order":
            after = after.flip(0)
        if mistake == "equal_sequences_exchanged":
            a, b, c = ends[2:5].tolist()
            out = torch.cat([out[:a], out[b:c], out[a:b], out[c:]])
        return out, after

    return call


def pooled(setup, mistake=""):
    """Take one sequence after the other, with its state out of a pool and back."""
    import torch

    alone = packed(setup)

    def call(*inputs):
        *steps, pool, ends, slots = inputs
        slots = slots.long()
        numbers = torch.arange(len(slots))
        found = {
            "state_of_the_neighbouring_slot": (slots + 1) % len(pool),
            "states_in_the_order_of_sequences": numbers,
        }.get(mistake, slots)
        out, states = alone(*steps, pool[found], ends)
        after = pool.clone()
        if mistake == "others_zeroed":
            after = torch.zeros_like(pool)
        if mistake == "others_overwritten_by_the_last":
            after = states[-1:].expand_as(pool).clone()
        if mistake == "written_at_the_next_slot_too":
            after[(slots + 1) % len(pool)] = states
        after[numbers if mistake == "written_at_the_number_of_the_sequence" else slots] = states
        return out, after

    return call


@hookimpl
def attnbench_backends():
    for name in ("pooled", *POOLED_MISTAKES):
        mistake = "" if name == "pooled" else name
        yield Backend(
            name=name, summary=name, prepare=lambda setup, mistake=mistake: pooled(setup, mistake),
            operations=("recurrent",), storages=("pooled",),
        )  # fmt: skip
    made = {name: lambda setup, name=name: prepare(setup, name) for name in MISTAKES}
    made["decays_clamped"] = lambda setup: prepare(setup, "decays_clamped")
    made[DECLARED] = lambda setup: prepare(setup, "state_in_bfloat16")
    made["by_powers"] = by_powers
    for name, function in ({"step_by_step": prepare, BY_MATRICES: right_by_matrices} | RIGHT | made).items():
        computes_in = "bfloat16" if name == DECLARED else None
        yield Backend(
            name=name, summary=name, prepare=function, operations=("recurrent",), computes_in=computes_in
        )
    for name in ("packed", *PACKED_MISTAKES):
        mistake = "" if name == "packed" else name
        yield Backend(
            name=name, summary=name, prepare=lambda setup, mistake=mistake: packed(setup, mistake),
            operations=("recurrent",), storages=("packed",),
        )  # fmt: skip
