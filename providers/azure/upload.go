// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
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

var noPages [pageRange]byte

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
	u := &pages{i: i, url: target.String(), from: file}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range uploaders {
		group.Go(func() {
			if err := u.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// pages are those of a file on their way into a disk.
type pages struct {
	i    *imageImport
	url  string
	from io.ReaderAt

	mu         sync.Mutex
	next, done int64
}

func (u *pages) work(ctx context.Context) error {
	block := make([]byte, pageRange)
	for {
		u.mu.Lock()
		at := u.next
		u.next += pageRange
		u.mu.Unlock()
		if at >= u.i.size || ctx.Err() != nil {
			return nil
		}
		part := block[:min(pageRange, u.i.size-at)]
		if _, err := u.from.ReadAt(part, at); err != nil {
			return fmt.Errorf("%w: read the image: %w", provider.ErrInvalidArgument, err)
		}
		if !bytes.Equal(part, noPages[:len(part)]) {
			if err := u.put(ctx, at, part); err != nil {
				return err
			}
		}
		u.mu.Lock()
		u.done += int64(len(part))
		u.i.tell(provider.ImageProgress{Step: "uploading", Done: u.done, Total: u.i.size})
		u.mu.Unlock()
	}
}

// put writes a range, and again when the storage had no time for it.
func (u *pages) put(ctx context.Context, at int64, part []byte) error {
	pause := u.i.tempo.retry.RetryDelay
	for attempt := int32(0); ; attempt++ {
		again, err := u.putOnce(ctx, at, part)
		if err == nil || !again || attempt == u.i.tempo.retry.MaxRetries {
			return err
		}
		if err := poll.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, u.i.tempo.retry.MaxRetryDelay)
	}
}

// rangeLimit bounds one attempt.
const rangeLimit = 2 * time.Minute

func (u *pages) putOnce(ctx context.Context, at int64, part []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, rangeLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, u.url, bytes.NewReader(part))
	if err != nil {
		return false, withoutURL(err)
	}
	request.Header.Set("x-ms-version", blobVersion)
	request.Header.Set("x-ms-page-write", "update")
	request.Header.Set("x-ms-range", fmt.Sprintf("bytes=%d-%d", at, at+int64(len(part))-1))
	response, err := u.i.cloud.http.Do(request)
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
	class := provider.ErrUnknown
	switch {
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= 500:
		class = provider.ErrUnavailable
	case response.StatusCode == http.StatusForbidden:
		class = provider.ErrPermissionDenied
	}
	return fmt.Errorf("write the disk at %d: %w: %w", at, class, errors.New(response.Status+" "+response.Header.Get("x-ms-error-code")))
}
