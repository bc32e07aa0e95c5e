// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"math"
	"strconv"
)

// parseScore parses a JSON number as the reference does. Its JSON package rounds twice, so that the last bit can differ
// from the nearest number. The last bit decides between tokens of equal probability, as in a long run of one character.
func parseScore(text string) (float64, error) {
	digits, exponent, at := uint64(0), 0, 0
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		at++
	}
	full, whole := false, true // whether no more digits fit, and whether the digits are before the point
	for ; at < len(text); at++ {
		c := text[at]
		if c == '.' {
			whole = false
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		full = full || digits > (math.MaxUint64-uint64(c-'0'))/10
		if !full {
			digits = digits*10 + uint64(c-'0')
		}
		if full == whole {
			if whole {
				exponent++
			} else {
				exponent--
			}
		}
	}
	if at < len(text) { // e or E
		given, err := strconv.Atoi(text[at+1:])
		if err != nil || given > 1<<20 || given < -1<<20 {
			return 0, corrupt("model.vocab", fmt.Sprintf("the score %.40q is not a number", text))
		}
		exponent += given
	}
	value := float64(digits)
	for ; exponent < -308 && value != 0; exponent += 308 {
		value /= 1e308
	}
	switch {
	case value == 0 || exponent == 0:
	case exponent > 308:
		value = math.Inf(1)
	case exponent > 0:
		value *= math.Pow10(exponent)
	default:
		value /= math.Pow10(-exponent)
	}
	if math.IsInf(value, 0) {
		return 0, corrupt("model.vocab", fmt.Sprintf("the score %.40q is too large", text))
	}
	if negative {
		value = -value
	}
	return value, nil
}
