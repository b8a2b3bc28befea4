// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"

	"github.com/vmware/govmomi/nfc"

	"github.com/outrigger/outrigger/provider"
)

// upload writes a file of the OVA where the lease says: mostly to the ESXi host
// itself, whose certificate vCenter has told.
func (i *imageImport) upload(ctx context.Context, item nfc.FileItem) error {
	transport := i.w.client.DefaultTransport().Clone()
	if item.Thumbprint != "" {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: pin(item.Thumbprint)}
	}
	defer transport.CloseIdleConnections()
	return member(i.source.Location, path.Base(item.Path), func(r io.Reader, size int64) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, item.URL.String(), &counted{from: r, total: size, tell: i.tell})
		if err != nil {
			return err
		}
		request.ContentLength = size
		request.Header.Set("Content-Type", "application/x-vnd.vmware-streamVmdk")
		if item.Create { // no disk, as ovftool does it
			request.Method = http.MethodPut
			request.Header.Set("Overwrite", "t")
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if failed := (&url.Error{}); errors.As(err, &failed) {
			failed.URL = item.URL.Host // whoever knows all of it can write the disk
		}
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= http.StatusMultipleChoices {
			return fmt.Errorf("%w: %s answers %s", provider.ErrUnavailable, item.URL.Host, response.Status)
		}
		return nil
	})
}

// counted counts how much of a file has been read.
type counted struct {
	from        io.Reader
	done, total int64
	tell        func(provider.ImageProgress)
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.done += int64(n)
	if n > 0 {
		c.tell(provider.ImageProgress{Step: "uploading", Done: c.done, Total: c.total})
	}
	return n, err
}
