// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	certutil "k8s.io/client-go/util/cert"
)

// Certificate is what a server shows: that of a mounted Secret, or one of its own
// while there is none. A Secret may be made, or renewed, while the server runs.
type Certificate struct {
	// Dir has tls.crt and tls.key; empty is none.
	Dir string

	once sync.Once
	own  tls.Certificate
	err  error
}

// Get implements the callback of [tls.Config].
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.Dir != "" {
		is, err := tls.LoadX509KeyPair(filepath.Join(c.Dir, "tls.crt"), filepath.Join(c.Dir, "tls.key"))
		if err == nil {
			return &is, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("certificate in %s: %w", c.Dir, err)
		}
	}
	c.once.Do(c.make)
	return &c.own, c.err
}

func (c *Certificate) make() {
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err == nil {
		c.own, err = tls.X509KeyPair(cert, key)
	}
	c.err = err
}
