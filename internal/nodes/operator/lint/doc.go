// SPDX-License-Identifier: Apache-2.0

// Package lint has the rules that the operands of a bundle keep, each with what
// it is for and what to do where it is broken.
package lint
