// SPDX-License-Identifier: Apache-2.0

// Package dist makes the folder that is handed to users who have no compiler:
// packages and archives of the programs, container images, charts, CRDs, bills
// of materials, build provenance, checksums and a signature. Equal sources,
// toolchain and Debian packages give equal bytes.
package dist
