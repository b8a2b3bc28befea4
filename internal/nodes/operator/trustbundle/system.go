// SPDX-License-Identifier: Apache-2.0

package trustbundle

import "os"

// Where systems keep their authorities: those of Red Hat's family and of Debian's.
const (
	RedHatFile = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	DebianFile = "/etc/ssl/certs/ca-certificates.crt"
)

// SystemFile returns the file with the system's authorities: the given one, or
// else the first of the usual ones that is there.
func SystemFile(given string) string {
	if given != "" {
		return given
	}
	for _, path := range []string{RedHatFile, DebianFile} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return RedHatFile
}
