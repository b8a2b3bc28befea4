// SPDX-License-Identifier: Apache-2.0

// Package userdata fetches, in the pod VM, what the node sent along with the
// instance, and writes the files that it asks for, of which only a few are
// allowed.
package userdata
