// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// readError reads the forms of the service and of IAM.
func readError(r *http.Response) error { return refusal(r, r.StatusCode) }

// refusal is a reply's, whose status may say less than another.
func refusal(r *http.Response, status int) error {
	text, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var body struct {
		Description  string `json:"description"`
		Message      string `json:"message"`
		ErrorMessage string `json:"errorMessage"`
	}
	_ = json.Unmarshal(text, &body) // without words the status says it
	e := &failure.Error{
		Status:  status,
		Message: cmp.Or(strings.TrimSpace(body.Description), strings.TrimSpace(body.Message), strings.TrimSpace(body.ErrorMessage), http.StatusText(r.StatusCode)),
	}
	if e.Status < http.StatusInternalServerError {
		e.Class = classOfWords(e.Message)
	}
	e.Class = cmp.Or(e.Class, failure.OfStatus(status, map[int]error{http.StatusUnprocessableEntity: provider.ErrInvalidArgument}))
	return e
}

// wordsOf are classes by what a refusal or a failed VM says: the service has no
// codes for these.
var wordsOf = []struct {
	words string
	class error
}{
	{"insufficient", provider.ErrCapacity},
	{"no valid host", provider.ErrCapacity},
	{"not enough", provider.ErrCapacity},
	{"no available", provider.ErrCapacity},
	{"maximum number of volumes", provider.ErrCapacity},
	{"quota", provider.ErrQuota},
	{"exceeds the limit", provider.ErrQuota},
}

// classOfWords returns nil where the words say nothing.
func classOfWords(text string) error {
	text = strings.ToLower(text)
	for _, w := range wordsOf {
		if strings.Contains(text, w.words) {
			return w.class
		}
	}
	return nil
}

// classify puts an error into its class.
func classify(err error) error {
	if failure.Untrusted(err) {
		err = fmt.Errorf("%w: if the certificate is your own, trust it with -powervs-ca-file (POWERVS_CA_FILE)", err)
	}
	return failure.Classify(err)
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) { failure.Wrap(err, classify, format, args...) }
