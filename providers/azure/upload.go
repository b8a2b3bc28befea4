// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/parts"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// A page blob is written in ranges of 4 MiB at most (Put Page); so many are
// under way at a time.
const (
	pageRange = 4 << 20
	uploaders = 4
	// blobVersion is the version of the service (Put Page, x-ms-version).
	blobVersion = "2023-11-03"
)

// upload writes the file into the disk behind a URL, which is a secret. Ranges
// of zeros need not be written.
func (i *imageImport) upload(ctx context.Context, sas string) error {
	target, err := url.Parse(sas)
	if err != nil || sas == "" {
		return fmt.Errorf("%w: the cloud answered no URL to write the disk at", provider.ErrUnknown)
	}
	query := target.Query()
	query.Set("comp", "page")
	target.RawQuery = query.Encode()
	file, err := os.Open(i.source.Location)
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	defer file.Close()
	u := parts.Upload{From: file, Size: i.size, Part: pageRange, AtOnce: uploaders, Tell: i.tell}
	u.Put = func(ctx context.Context, at int64, part []byte) error { return i.put(ctx, target.String(), at, part) }
	return u.Run(ctx)
}

// put writes a range, and again when the storage had no time for it.
func (i *imageImport) put(ctx context.Context, to string, at int64, part []byte) error {
	pause := i.tempo.retry.RetryDelay
	for attempt := int32(0); ; attempt++ {
		again, err := i.putOnce(ctx, to, at, part)
		if err == nil || !again || attempt == i.tempo.retry.MaxRetries {
			return err
		}
		if err := poll.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, i.tempo.retry.MaxRetryDelay)
	}
}

// rangeLimit bounds one attempt.
const rangeLimit = 2 * time.Minute

func (i *imageImport) putOnce(ctx context.Context, to string, at int64, part []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, rangeLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, to, bytes.NewReader(part))
	if err != nil {
		return false, withoutURL(err)
	}
	request.Header.Set("x-ms-version", blobVersion)
	request.Header.Set("x-ms-page-write", "update")
	request.Header.Set("x-ms-range", fmt.Sprintf("bytes=%d-%d", at, at+int64(len(part))-1))
	response, err := i.cloud.http.Do(request)
	if err != nil {
		return true, fmt.Errorf("write the disk at %d: %w: %w", at, provider.ErrUnavailable, withoutURL(err))
	}
	defer response.Body.Close()
	io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // lets the connection be used again
	return response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500, pageError(response, at)
}

func pageError(response *http.Response, at int64) error {
	if response.StatusCode == http.StatusCreated {
		return nil
	}
	return fmt.Errorf("write the disk at %d: %w", at, answered(response.StatusCode, response.Header.Get("x-ms-error-code"), "the disk's blob"))
}
