/* SPDX-License-Identifier: Apache-2.0 */
/* Preprocessor lists: TIDE_EACH(F, with, a, b, ...) is F(with, a) F(with, b) ..., for up to 34 elements. */
#ifndef TIDE_BASE_EACH_H
#define TIDE_BASE_EACH_H

#define TIDE_EACH(F, with, ...)                                                                                        \
    TIDE_EACH_PICK(__VA_ARGS__, TIDE_EACH_34, TIDE_EACH_33, TIDE_EACH_32, TIDE_EACH_31, TIDE_EACH_30, TIDE_EACH_29,    \
                   TIDE_EACH_28, TIDE_EACH_27, TIDE_EACH_26, TIDE_EACH_25, TIDE_EACH_24, TIDE_EACH_23, TIDE_EACH_22,   \
                   TIDE_EACH_21, TIDE_EACH_20, TIDE_EACH_19, TIDE_EACH_18, TIDE_EACH_17, TIDE_EACH_16, TIDE_EACH_15,   \
                   TIDE_EACH_14, TIDE_EACH_13, TIDE_EACH_12, TIDE_EACH_11, TIDE_EACH_10, TIDE_EACH_9, TIDE_EACH_8,     \
                   TIDE_EACH_7, TIDE_EACH_6, TIDE_EACH_5, TIDE_EACH_4, TIDE_EACH_3, TIDE_EACH_2, TIDE_EACH_1, )        \
    (F, with, __VA_ARGS__)

#define TIDE_EACH_PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, \
                       a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, picked, ...)                   \
    picked
#define TIDE_EACH_1(F, with, a) F(with, a)
#define TIDE_EACH_2(F, with, a, ...) F(with, a) TIDE_EACH_1(F, with, __VA_ARGS__)
#define TIDE_EACH_3(F, with, a, ...) F(with, a) TIDE_EACH_2(F, with, __VA_ARGS__)
#define TIDE_EACH_4(F, with, a, ...) F(with, a) TIDE_EACH_3(F, with, __VA_ARGS__)
#define TIDE_EACH_5(F, with, a, ...) F(with, a) TIDE_EACH_4(F, with, __VA_ARGS__)
#define TIDE_EACH_6(F, with, a, ...) F(with, a) TIDE_EACH_5(F, with, __VA_ARGS__)
#define TIDE_EACH_7(F, with, a, ...) F(with, a) TIDE_EACH_6(F, with, __VA_ARGS__)
#define TIDE_EACH_8(F, with, a, ...) F(with, a) TIDE_EACH_7(F, with, __VA_ARGS__)
#define TIDE_EACH_9(F, with, a, ...) F(with, a) TIDE_EACH_8(F, with, __VA_ARGS__)
#define TIDE_EACH_10(F, with, a, ...) F(with, a) TIDE_EACH_9(F, with, __VA_ARGS__)
#define TIDE_EACH_11(F, with, a, ...) F(with, a) TIDE_EACH_10(F, with, __VA_ARGS__)
#define TIDE_EACH_12(F, with, a, ...) F(with, a) TIDE_EACH_11(F, with, __VA_ARGS__)
#define TIDE_EACH_13(F, with, a, ...) F(with, a) TIDE_EACH_12(F, with, __VA_ARGS__)
#define TIDE_EACH_14(F, with, a, ...) F(with, a) TIDE_EACH_13(F, with, __VA_ARGS__)
#define TIDE_EACH_15(F, with, a, ...) F(with, a) TIDE_EACH_14(F, with, __VA_ARGS__)
#define TIDE_EACH_16(F, with, a, ...) F(with, a) TIDE_EACH_15(F, with, __VA_ARGS__)
#define TIDE_EACH_17(F, with, a, ...) F(with, a) TIDE_EACH_16(F, with, __VA_ARGS__)
#define TIDE_EACH_18(F, with, a, ...) F(with, a) TIDE_EACH_17(F, with, __VA_ARGS__)
#define TIDE_EACH_19(F, with, a, ...) F(with, a) TIDE_EACH_18(F, with, __VA_ARGS__)
#define TIDE_EACH_20(F, with, a, ...) F(with, a) TIDE_EACH_19(F, with, __VA_ARGS__)
#define TIDE_EACH_21(F, with, a, ...) F(with, a) TIDE_EACH_20(F, with, __VA_ARGS__)
#define TIDE_EACH_22(F, with, a, ...) F(with, a) TIDE_EACH_21(F, with, __VA_ARGS__)
#define TIDE_EACH_23(F, with, a, ...) F(with, a) TIDE_EACH_22(F, with, __VA_ARGS__)
#define TIDE_EACH_24(F, with, a, ...) F(with, a) TIDE_EACH_23(F, with, __VA_ARGS__)
#define TIDE_EACH_25(F, with, a, ...) F(with, a) TIDE_EACH_24(F, with, __VA_ARGS__)
#define TIDE_EACH_26(F, with, a, ...) F(with, a) TIDE_EACH_25(F, with, __VA_ARGS__)
#define TIDE_EACH_27(F, with, a, ...) F(with, a) TIDE_EACH_26(F, with, __VA_ARGS__)
#define TIDE_EACH_28(F, with, a, ...) F(with, a) TIDE_EACH_27(F, with, __VA_ARGS__)
#define TIDE_EACH_29(F, with, a, ...) F(with, a) TIDE_EACH_28(F, with, __VA_ARGS__)
#define TIDE_EACH_30(F, with, a, ...) F(with, a) TIDE_EACH_29(F, with, __VA_ARGS__)
#define TIDE_EACH_31(F, with, a, ...) F(with, a) TIDE_EACH_30(F, with, __VA_ARGS__)
#define TIDE_EACH_32(F, with, a, ...) F(with, a) TIDE_EACH_31(F, with, __VA_ARGS__)
#define TIDE_EACH_33(F, with, a, ...) F(with, a) TIDE_EACH_32(F, with, __VA_ARGS__)
#define TIDE_EACH_34(F, with, a, ...) F(with, a) TIDE_EACH_33(F, with, __VA_ARGS__)

#endif
