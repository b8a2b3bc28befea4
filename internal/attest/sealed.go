// SPDX-License-Identifier: Apache-2.0

package attest

import "bytes"

// SealedPrefix is what a sealed Secret begins with, before HEADER.PAYLOAD.SIGNATURE of a JWS: guest-components,
// confidential-data-hub/docs/SEALED_SECRET.md.
const SealedPrefix = "sealed."

// IsSealed reports whether a text is a sealed Secret, by its form.
func IsSealed(text []byte) bool {
	rest, is := bytes.CutPrefix(text, []byte(SealedPrefix))
	return is && bytes.Count(bytes.TrimSpace(rest), []byte(".")) == 2 && !bytes.ContainsAny(bytes.TrimSpace(rest), " \t\r\n")
}
