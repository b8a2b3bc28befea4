// SPDX-License-Identifier: Apache-2.0

// Package guestlimits reads the limits of a container in the guest from the
// record that the webhook leaves on its pod. It is small, for programs that do
// not otherwise know Kubernetes' types.
package guestlimits

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// Annotation holds the record; package podsize writes it.
const Annotation = "outrigger.dev/resources"

// Limits are values of the cgroup controllers. Zero means no limit.
type Limits struct {
	MemoryBytes int64
	CPUShares   uint64
	CPUQuota    int64
	CPUPeriod   uint64
}

// period is what kubelet uses, in microseconds.
const period = 100_000

// MaxRecord is the length of the longest record in bytes: more than a hundred
// containers have.
const MaxRecord = 16 << 10

// maxBrackets is how many a record has, in names at most; depth costs memory.
const maxBrackets = 100

// record is the part of podsize.Record that is needed here. Only the requested
// container is decoded.
type record struct {
	Containers map[string]json.RawMessage `json:"containers"`
}

type container struct {
	Requests struct {
		CPU quantity `json:"cpu"`
	} `json:"requests"`
	Limits struct {
		CPU    quantity `json:"cpu"`
		Memory quantity `json:"memory"`
	} `json:"limits"`
}

// Of returns the limits that kubelet would have set for the container, none if
// the annotations hold no record of it. The record may be a user's text: what it
// costs to read is bounded.
func Of(annotations map[string]string, name string) (Limits, error) {
	text, found := annotations[Annotation]
	if !found {
		return Limits{}, nil
	}
	if len(text) > MaxRecord {
		return Limits{}, fmt.Errorf("annotation %s has %d bytes: at most %d are read", Annotation, len(text), MaxRecord)
	}
	if strings.Count(text, "[") > maxBrackets {
		return Limits{}, fmt.Errorf("annotation %s: a record has no lists", Annotation)
	}
	var r record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Limits{}, fmt.Errorf("annotation %s: %w", Annotation, err)
	}
	part, found := r.Containers[name]
	if !found {
		return Limits{}, nil
	}
	var c container
	if err := json.Unmarshal(part, &c); err != nil {
		return Limits{}, fmt.Errorf("annotation %s: container %q: %w", Annotation, name, err)
	}
	return limits(c.Requests.CPU, c.Limits.CPU, c.Limits.Memory), nil
}

// limits converts as kubelet does: at least 2 shares, at least 1 ms of quota.
func limits(request, limit, memory quantity) Limits {
	l := Limits{MemoryBytes: max(memory.times(1), 0)}
	if milli := request.times(1000); milli > 0 {
		l.CPUShares = uint64(min(max(milli*1024/1000, 2), 262144))
	}
	if milli := limit.times(1000); milli > 0 {
		l.CPUQuota, l.CPUPeriod = max(milli*period/1000, 1000), period
	}
	return l
}

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
