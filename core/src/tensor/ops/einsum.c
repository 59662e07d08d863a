/* SPDX-License-Identifier: Apache-2.0 */
/* einsum of two tensors: aten/src/ATen/native/Linear.cpp, einsum and sumproduct_pair. */
#include "tensor/ops/ops.h"

/* The position of each letter in an operand or in the output, -1 if it is missing, and where the text ends. False if a
 * character is not a letter or a letter comes twice. */
static bool read_letters(tide_text *rest, const char *end, int place[26], int *count) {
    *count = 0;
    for (int i = 0; i < 26; i++) place[i] = -1;
    for (; rest->length && *rest->at != *end; rest->at++, rest->length--) {
        int letter = *rest->at - 'a';
        if (letter < 0 || letter >= 26 || place[letter] >= 0) return false;
        place[letter] = (*count)++;
    }
    for (; *end && rest->length && *rest->at == *end; end++) rest->at++, rest->length--;
    return !*end;
}

/* An operand with its dimensions permuted to `order`, with size 1 for missing ones. */
static tide_tensor *spread(tide_machine *m, tide_tensor *x, const int place[26], const int order[26], int dims) {
    tide_tensor *wide = tide_retain(x);
    int64_t permutation[TIDE_MAX_DIMS] = {0};
    int given = x->shape->dims;
    for (int i = 0; i < dims; i++) permutation[i] = place[order[i]] >= 0 ? place[order[i]] : given++;
    for (int i = x->shape->dims; i < dims; i++) {
        tide_tensor *next = tide_unsqueeze(m, wide, -1);
        tide_release(m, wide);
        wide = next;
    }
    tide_tensor *made = tide_permute(m, wide, permutation);
    tide_release(m, wide);
    return made;
}

/* Permutes, then joins the dimensions of groups[0], [1] and [2] into one each. */
static tide_tensor *grouped_dims(tide_machine *m, tide_tensor *x, const int64_t *permutation, const int groups[3]) {
    tide_tensor *turned = tide_permute(m, x, permutation);
    tide_shape flat = {.dims = 0};
    for (int i = 0, from = 0; i < 3; from += groups[i++])
        tide_push_dim(&flat, tide_joined_dims(m, turned->shape, from, from + groups[i]));
    tide_tensor *made = tide_reshape(m, turned, &flat);
    tide_release(m, turned);
    return made;
}

/* Multiplies two operands of `dims` dimensions, of which those from `kept` on are summed: depending on their sizes,
 * dimensions are batches (of both), rows (of the left one only), sums, or columns. If all columns come before the rows,
 * left and right are swapped. */
static tide_tensor *sum_product(tide_machine *m, tide_tensor *a, tide_tensor *b, int dims, int kept) {
    enum { BATCH, ROW, SUM, COLUMN };
    int64_t of[4][TIDE_MAX_DIMS], left[TIDE_MAX_DIMS], right[TIDE_MAX_DIMS], back[TIDE_MAX_DIMS] = {0};
    int count[4] = {0};
    for (int i = 0; i < dims; i++) {
        bool in_a = a->shape->dim[i].size != 1, in_b = b->shape->dim[i].size != 1;
        int kind = !in_a ? COLUMN : !in_b ? ROW : i < kept ? BATCH : SUM;
        of[kind][count[kind]++] = i;
    }
    static const int of_right[4] = {BATCH, SUM, COLUMN, ROW};
    if (!count[SUM]) return tide_mul(m, a, b);
    if (count[ROW] && count[COLUMN] && of[COLUMN][count[COLUMN] - 1] < of[ROW][0])
        return sum_product(m, b, a, dims, kept);
    tide_shape shape = {.dims = 0};
    for (int k = 0, l = 0, r = 0; k < 4; k++) {
        for (int i = 0; i < count[of_right[k]]; i++) right[r++] = of[of_right[k]][i];
        for (int i = 0; i < count[k]; i++) {
            back[of[k][i]] = l;
            left[l++] = of[k][i];
            tide_push_dim(&shape, k == SUM ? (tide_dim){1, 0} : tide_dim_of(k == COLUMN ? b : a, (int)of[k][i]));
        }
    }
    tide_tensor *x = grouped_dims(m, a, left, (int[3]){count[BATCH], count[ROW], count[SUM]});
    tide_tensor *y = grouped_dims(m, b, right, (int[3]){count[BATCH], count[SUM], count[COLUMN]});
    tide_tensor *out = m->has_failed ? tide_retain(x) : tide_bmm(m, x, y);
    tide_release(m, y);
    tide_release(m, x);
    if (m->has_failed) return out;
    tide_tensor *viewed = tide_view(m, out, &shape), *made = tide_permute(m, viewed, back);
    tide_release(m, viewed);
    tide_release(m, out);
    return made;
}

/* "ab,bc->ac": two operands with lower-case letters, summed over letters that both have. */
tide_value tide_op_einsum(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[1]), *y = tide_arg_tensor(m, a[2]);
    tide_text rest = a[0].kind == TIDE_VALUE_TEXT ? a[0].text : (tide_text){NULL, 0};
    int of_x[26], of_y[26], of_out[26], order[26], x_dims, y_dims, kept, dims;
    bool ok = read_letters(&rest, ",", of_x, &x_dims) && read_letters(&rest, "->", of_y, &y_dims) &&
              read_letters(&rest, "", of_out, &kept) && x_dims == x->shape->dims && y_dims == y->shape->dims;
    dims = ok ? kept : 0;
    for (int i = 0; i < 26 && ok; i++) {
        if (of_out[i] >= 0)
            order[of_out[i]] = i;
        else if (of_x[i] >= 0 && of_y[i] >= 0)
            order[dims++] = i;
        ok = (of_out[i] < 0 || of_x[i] >= 0 || of_y[i] >= 0) && ((of_x[i] < 0) == (of_y[i] < 0) || of_out[i] >= 0) &&
             (of_x[i] < 0 || of_y[i] < 0 || x->shape->dim[of_x[i]].size == y->shape->dim[of_y[i]].size);
    }
    if (!ok || dims > TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_SHAPE, "einsum: %s and %s do not fit the equation", tide_shape_text(m, x->shape),
                  tide_shape_text(m, y->shape));
        return tide_none();
    }
    tide_tensor *left = spread(m, x, of_x, order, dims), *right = spread(m, y, of_y, order, dims);
    tide_tensor *out = sum_product(m, left, right, dims, kept);
    for (int i = dims - 1; i >= kept && !m->has_failed; i--) {
        tide_tensor *next = tide_squeeze(m, out, i);
        tide_release(m, out);
        out = next;
    }
    tide_release(m, right);
    tide_release(m, left);
    return tide_of_tensor(out);
}
