// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cut returns the page after the token, at most max entries if that is not 0, and the token of the
// next page. A token names the last entry of a page, by time and id: what is deleted or made
// between two pages moves nothing that is listed in another.
func cut[T any](all []T, key func(T) (created int64, id string), token string, max int32) (page []T, next string, err error) {
	if max < 0 {
		return nil, "", invalid("max_entries %d", max)
	}
	compare := func(a, b T) int {
		createdA, idA := key(a)
		createdB, idB := key(b)
		return cmp.Or(cmp.Compare(createdA, createdB), cmp.Compare(idA, idB))
	}
	slices.SortFunc(all, compare)
	if token != "" {
		text, lastID, ok := strings.Cut(token, "/")
		last, wrong := strconv.ParseInt(text, 10, 64)
		if !ok || wrong != nil {
			return nil, "", fmt.Errorf("%w: starting_token %q is not of this driver", errToken, token)
		}
		all = slices.DeleteFunc(all, func(t T) bool {
			created, id := key(t)
			return cmp.Or(cmp.Compare(created, last), cmp.Compare(id, lastID)) <= 0
		})
	}
	if max == 0 || int(max) >= len(all) {
		return all, "", nil
	}
	created, id := key(all[max-1])
	return all[:max], fmt.Sprintf("%d/%s", created, id), nil
}
