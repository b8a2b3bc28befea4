// SPDX-License-Identifier: Apache-2.0

package guestlimits

import (
	"fmt"
	"math/big"
	"regexp"
)

// quantity is one of Kubernetes, as its API writes it. Its own type would be a
// tenth of a small program.
type quantity struct{ big.Rat }

// form is the serialization format of resource.Quantity with bounds, since the
// text may be a user's: 19 digits hold every int64, 9 places its smallest unit
// (n), and an exponent of two digits all that a number of bytes can be. Longer
// ones would cost memory out of proportion to their text. A sign, leading zeros and a
// point at the end stay as the user wrote them.
var form = regexp.MustCompile(`^\+?0*([0-9]{1,19}(?:\.[0-9]{0,9})?)([numk]|[KMGTPE]i|[MGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// scales are the suffixes: powers of 1000 and of 1024.
var scales = func() map[string]*big.Rat {
	m := map[string]*big.Rat{"": big.NewRat(1, 1), "n": big.NewRat(1, 1e9), "u": big.NewRat(1, 1e6), "m": big.NewRat(1, 1e3)}
	decimal, binary := int64(1), int64(1)
	for _, suffix := range []string{"K", "M", "G", "T", "P", "E"} {
		decimal, binary = decimal*1000, binary*1024
		m[suffix], m[suffix+"i"] = big.NewRat(decimal, 1), big.NewRat(binary, 1)
	}
	m["k"] = m["K"]
	delete(m, "K")
	return m
}()

// UnmarshalJSON takes "1500m", "1Gi", "12e6", or a plain number.
func (q *quantity) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return fmt.Errorf("%.40q is not a quantity such as 1500m or 1Gi", text)
	}
	number, suffix := parts[1], parts[2]
	scale, known := scales[suffix]
	if !known {
		number, scale = number+suffix, scales[""] // an exponent
	}
	if _, ok := q.SetString(number); !ok {
		return fmt.Errorf("%.40q is not a quantity such as 1500m or 1Gi", text)
	}
	q.Mul(&q.Rat, scale)
	return nil
}

// times returns q*n rounded up, at most the largest number there is.
func (q *quantity) times(n int64) int64 {
	product := new(big.Rat).Mul(&q.Rat, new(big.Rat).SetInt64(n))
	up := new(big.Int).Add(product.Num(), new(big.Int).Sub(product.Denom(), big.NewInt(1)))
	up.Div(up, product.Denom())
	if !up.IsInt64() {
		return int64(1<<63 - 1)
	}
	return up.Int64()
}
