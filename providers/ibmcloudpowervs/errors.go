// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// apiError is a refusal.
type apiError struct {
	Status  int
	Message string
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Status) }

// readError reads the forms of the service and of IAM.
func readError(r *http.Response) *apiError {
	text, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var body struct {
		Description  string `json:"description"`
		Message      string `json:"message"`
		ErrorMessage string `json:"errorMessage"`
	}
	_ = json.Unmarshal(text, &body) // without words the status says it
	for _, words := range []string{body.Description, body.Message, body.ErrorMessage} {
		if words = strings.TrimSpace(words); words != "" {
			return &apiError{r.StatusCode, words}
		}
	}
	return &apiError{r.StatusCode, http.StatusText(r.StatusCode)}
}

// statuses are classes by status.
var statuses = map[int]error{
	http.StatusBadRequest:          provider.ErrInvalidArgument,
	http.StatusUnauthorized:        provider.ErrUnauthenticated,
	http.StatusForbidden:           provider.ErrPermissionDenied,
	http.StatusNotFound:            provider.ErrNotFound,
	http.StatusConflict:            provider.ErrUnavailable, // another operation goes on
	http.StatusUnprocessableEntity: provider.ErrInvalidArgument,
	http.StatusRequestTimeout:      provider.ErrUnavailable,
	http.StatusTooManyRequests:     provider.ErrUnavailable,
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
	var refused *apiError
	switch {
	case err == nil, provider.Class(err) != provider.ErrUnknown:
		return err
	case errors.As(err, &refused):
		return fmt.Errorf("%w: %w", refused.class(), err)
	case rest.Untrusted(err):
		return fmt.Errorf("%w: %w: if the certificate is your own, trust it with -powervs-ca-file (POWERVS_CA_FILE)", provider.ErrUnavailable, err)
	case rest.NoReply(err):
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return err
}

func (e *apiError) class() error {
	if class := classOfWords(e.Message); class != nil && e.Status < http.StatusInternalServerError {
		return class
	}
	if class := statuses[e.Status]; class != nil {
		return class
	}
	if e.Status >= http.StatusInternalServerError {
		return provider.ErrUnavailable
	}
	return provider.ErrUnknown
}

func isStatus(err error, status int) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Status == status
}
