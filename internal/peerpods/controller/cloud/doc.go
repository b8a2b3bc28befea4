// SPDX-License-Identifier: Apache-2.0

// Package cloud holds the providers that the controller works with: several at
// once, each by its name, configured from settings that may change at any
// time, and each listed at most once per interval however many ask.
package cloud
