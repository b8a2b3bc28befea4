// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"io"
)

// WriteJSON writes v for people as well: indented.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
