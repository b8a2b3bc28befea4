// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/foxboron/go-uefi/authenticode"
)

// signEFI signs an EFI program for Secure Boot with the key and the certificate of two PEM files (Microsoft, Windows
// Authenticode Portable Executable Signature Format). Signing twice gives equal bytes except for the time of the signature.
func signEFI(efi []byte, keyFile, certFile string) ([]byte, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile) // which also checks that they belong together
	if err != nil {
		return nil, fmt.Errorf("key and certificate for Secure Boot: %w", err)
	}
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("key for Secure Boot: firmware takes RSA only; make one with openssl req -newkey rsa:2048")
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	program, err := authenticode.Parse(bytes.NewReader(efi))
	if err != nil {
		return nil, err
	}
	if _, err := program.Sign(key, cert); err != nil {
		return nil, err
	}
	return program.Bytes(), nil
}
