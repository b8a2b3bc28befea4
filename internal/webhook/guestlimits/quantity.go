// SPDX-License-Identifier: Apache-2.0

package guestlimits

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// quantity is one of Kubernetes, as its API writes it. Its own type would be a
// tenth of a small program.
type quantity struct{ big.Rat }

// suffixes are powers of 1000 and of 1024 (serialization format of
// resource.Quantity).
const (
	decimal = "numkMGTPE" // from 10^-9; m is followed by 10^3
	binary  = "KMGTPE"
)

// UnmarshalJSON takes "1500m", "1Gi", "12e6", or a plain number.
func (q *quantity) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	digits := strings.TrimRight(text, "numkMGTPEKi")
	scale, known := scaleOf(text[len(digits):])
	if _, ok := q.SetString(digits); !ok || !known || strings.ContainsAny(digits, "/_xX") {
		return fmt.Errorf("%s is no quantity", data)
	}
	q.Mul(&q.Rat, scale)
	return nil
}

var _ json.Unmarshaler = (*quantity)(nil)

func scaleOf(suffix string) (*big.Rat, bool) {
	base, exponent := int64(1000), 0
	switch i := strings.IndexAny(suffix, decimal+binary); {
	case suffix == "":
	case len(suffix) == 2 && suffix[1] == 'i' && strings.Contains(binary, suffix[:1]):
		base, exponent = 1024, 1+strings.Index(binary, suffix[:1])
	case len(suffix) == 1 && i == 0 && suffix != "K":
		exponent = strings.Index(decimal, suffix) - 3
		if exponent >= 0 {
			exponent++
		}
	default:
		return nil, false
	}
	power := new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(max(exponent, -exponent))), nil)
	if exponent < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), power), true
	}
	return new(big.Rat).SetInt(power), true
}

// times answers q*n rounded up, at most the largest number there is.
func (q *quantity) times(n int64) int64 {
	product := new(big.Rat).Mul(&q.Rat, new(big.Rat).SetInt64(n))
	up := new(big.Int).Add(product.Num(), new(big.Int).Sub(product.Denom(), big.NewInt(1)))
	up.Div(up, product.Denom())
	if !up.IsInt64() {
		return int64(1<<63 - 1)
	}
	return up.Int64()
}
