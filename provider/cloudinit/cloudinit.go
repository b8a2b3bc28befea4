// SPDX-License-Identifier: Apache-2.0

// Package cloudinit writes the user-data of a pod VM: a #cloud-config document
// that holds nothing but write_files.
package cloudinit

// CloudConfigGenerator makes the user-data of one instance.
type CloudConfigGenerator interface {
	Generate() (string, error)
}
