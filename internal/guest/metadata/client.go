// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider/cloudinit"
)

// callTimeout bounds one request; the caller tries again.
const callTimeout = 5 * time.Second

// The addresses of metadata services. They are link-local or the cloud's own:
// a packet to them never leaves the cloud's host.
const (
	linkLocal   = "http://169.254.169.254"
	alibabaHost = "http://100.100.100.200"
	googleHost  = "http://metadata.google.internal"
	ibmHost     = "https://api.metadata.cloud.ibm.com"
)

// maxBody bounds a response: user-data in base64 and some JSON around it.
const maxBody = 2*cloudinit.MaxSize + 64<<10

// newClient returns a client that talks to the given address and no other.
func newClient() *http.Client {
	return &http.Client{
		Timeout:   callTimeout,
		Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("a metadata service must not redirect")
		},
	}
}

// call is one request: headers are pairs of name and value. The method is GET if it is empty.
type call struct {
	method, url, body string
	headers           []string
}

// statusError is a response with a status other than 200.
type statusError struct {
	call   string
	status int
}

func (e statusError) Error() string {
	return fmt.Sprintf("%s answered %d %s", e.call, e.status, http.StatusText(e.status))
}

// send returns the body and the headers. Errors hold no body: it may be
// somebody's secret.
func send(ctx context.Context, client *http.Client, c call) (string, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return "", nil, err
	}
	for i := 0; i+1 < len(c.headers); i += 2 {
		request.Header.Set(c.headers[i], c.headers[i+1])
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		return "", nil, statusError{cmp.Or(c.method, http.MethodGet) + " " + c.url, answer.StatusCode}
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("%s answered more than %d bytes", c.url, maxBody)
	}
	return string(body), answer.Header, err
}

// isStatus reports whether err is a response with that status.
func isStatus(err error, status int) bool {
	var failed statusError
	return errors.As(err, &failed) && failed.status == status
}

// nothing turns an empty document into an error.
func nothing(data, where string) ([]byte, error) {
	if data == "" {
		return nil, errors.New(where + " is empty: the instance was made without user-data")
	}
	return []byte(data), nil
}

// decode decodes base64 with or without line breaks.
func decode(text, where string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, fmt.Errorf("%s is not base64: %w", where, err)
	}
	return nothing(string(data), where)
}
