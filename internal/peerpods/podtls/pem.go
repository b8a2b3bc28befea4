// SPDX-License-Identifier: Apache-2.0

package podtls

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// parseCertificates reads every certificate of a PEM text. One that cannot be
// read is an error, where x509.CertPool would skip it.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM certificate in it")
	}
	return certs, nil
}
