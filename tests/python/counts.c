/* SPDX-License-Identifier: MIT
 *
 * The accelerator's own conversions, for any count and not only for what a clock happens to show.
 */
#include "../../bindings/python/clocks.c"

static PyObject *as_int(PyObject *self, PyObject *argument) {
    const unsigned long long count = PyLong_AsUnsignedLongLong(argument);
    (void)self;
    if (count == ULLONG_MAX && PyErr_Occurred())
        return NULL;
    return int_from_count(count);
}

static PyObject *as_float(PyObject *self, PyObject *argument) {
    const unsigned long long count = PyLong_AsUnsignedLongLong(argument);
    (void)self;
    if (count == ULLONG_MAX && PyErr_Occurred())
        return NULL;
    return float_from_count(count);
}

static PyMethodDef counts_methods[] = {
    {"as_int", as_int, METH_O, NULL}, {"as_float", as_float, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef counts_definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "counts", .m_size = -1, .m_methods = counts_methods};

PyMODINIT_FUNC PyInit_counts(void) {
    return PyModule_Create(&counts_definition);
}
