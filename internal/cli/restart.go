// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strconv"
	"strings"
)

// restartPolicy is --restart, and restartPolicy of a manifest: whether a container is started again that has ended by
// itself.
type restartPolicy struct {
	Always, OnFailure bool
	// Most is how often at most; 0 means any number.
	Most int
}

func parseRestart(text string) (p restartPolicy, err error) {
	name, most, limited := strings.Cut(text, ":")
	switch name {
	case "", "no":
	case "always", "unless-stopped":
		p.Always = true
	case "on-failure":
		p.OnFailure = true
		if limited {
			p.Most, err = strconv.Atoi(most)
		}
	default:
		err = errors.New("unknown")
	}
	if err != nil || limited && (!p.OnFailure || p.Most < 1) {
		return p, errors.New("want no, on-failure[:TIMES], always or unless-stopped")
	}
	return p, nil
}

func (p restartPolicy) again(code, restarts int) bool {
	return p.Always || p.OnFailure && code != 0 && (p.Most == 0 || restarts < p.Most)
}
