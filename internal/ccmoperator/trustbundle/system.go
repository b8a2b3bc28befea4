// SPDX-License-Identifier: Apache-2.0

package trustbundle

import "os"

// systemFiles are where systems keep their authorities: those of Red Hat's
// family and of Debian's.
var systemFiles = []string{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/certs/ca-certificates.crt"}

// SystemFile answers the file with the system's authorities: the given one, or
// else the first of the usual ones that is there.
func SystemFile(given string) string {
	if given != "" {
		return given
	}
	for _, path := range systemFiles {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return systemFiles[0]
}
