// SPDX-License-Identifier: Apache-2.0

package keybroker

import "errors"

// What a broker answers, whichever status it comes with.
var (
	// ErrNotFound: the broker has no such resource.
	ErrNotFound = errors.New("not found")
	// ErrRefused: the broker does not give it to this VM.
	ErrRefused = errors.New("refused")
)
