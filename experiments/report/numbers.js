"use strict";
// The style of numbers, as in experiments/cli/console.py. tests/browser/test_numbers.py holds both equal. Only exact ties
// such as 2.5 differ: Python rounds them to even, JavaScript up.

const numbers = (() => {
  /** A number as Python's `:.3g`. */
  function g(number, digits = 3) {
    const value = Number(number.toPrecision(digits));
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    const short = (text) => text.includes(".") ? text.replace(/\.?0+$/, "") : text;
    if (exponent < -4 || exponent >= digits) return `${short(mantissa)}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
    return short(Number(value).toPrecision(digits));
  }

  function si(value) {
    for (const [limit, suffix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(value) >= limit * 0.9995) return g(value / limit) + suffix;
    return g(value);
  }

  const fixed = (value, digits) => value.toFixed(digits);
  function signed(value, digits = 4) {
    const text = fixed(value, digits);
    return /^-?[0.]+$/.test(text) ? text.replace("-", "") : text.startsWith("-") ? text.replace("-", "−") : `+${text}`;
  }
  const percent = (share, digits = 1) => `${fixed(100 * share, digits)} %`;
  const flopsText = (value) => g(value, 2).replace("e+", "e");
  const thousands = (value) => value.toLocaleString("en");
  return { g, si, fixed, signed, percent, flopsText, thousands };
})();
