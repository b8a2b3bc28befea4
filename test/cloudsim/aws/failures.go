// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/xml"
	"fmt"
	"net/http"
)

// failure is an error of the cloud's.
type failure struct {
	Code, Message string
	Status        int
}

// statuses are the HTTP statuses of error codes where they are not 400. Client
// errors are of the 400 series and server errors of the 500 series (EC2 API
// reference, "Error codes", tables "Client error codes" and "Server error
// codes").
var statuses = map[string]int{
	"AuthFailure":                          http.StatusUnauthorized,        // Common client error codes
	"UnauthorizedOperation":                http.StatusForbidden,           // Common client error codes
	"AccessDenied":                         http.StatusForbidden,           // STS, Common errors
	"InvalidClientTokenId":                 http.StatusForbidden,           // STS, Common errors
	"SignatureDoesNotMatch":                http.StatusForbidden,           // STS, Common errors
	"DryRunOperation":                      http.StatusPreconditionFailed,  // Common client error codes
	"InsufficientInstanceCapacity":         http.StatusInternalServerError, // Server error codes
	"InsufficientAddressCapacity":          http.StatusInternalServerError, // Server error codes
	"InsufficientCapacity":                 http.StatusInternalServerError, // Server error codes
	"InternalError":                        http.StatusInternalServerError, // Server error codes
	"InternalFailure":                      http.StatusInternalServerError, // Server error codes
	"RequestLimitExceeded":                 http.StatusServiceUnavailable,  // Server error codes
	"ServiceUnavailable":                   http.StatusServiceUnavailable,  // Server error codes
	"Unavailable":                          http.StatusServiceUnavailable,  // Server error codes
	"InsufficientReservedInstanceCapacity": http.StatusInternalServerError, // Server error codes
}

func fail(code, format string, args ...any) *failure {
	status := statuses[code]
	if status == 0 {
		status = http.StatusBadRequest
	}
	return &failure{code, fmt.Sprintf(format, args...), status}
}

const requestID = "4a17f1d2-6f9e-4d3c-9b1e-EXAMPLE00000"

// write sends the error in the form of the service's protocol.
func (f *failure) write(w http.ResponseWriter, d *definition) {
	if d.isJSON() {
		f.writeJSON(w)
		return
	}
	type entry struct {
		Type    string `xml:",omitempty"`
		Code    string
		Message string
	}
	var document any
	if d.Metadata.Protocol == "ec2" {
		document = struct {
			XMLName   xml.Name `xml:"Response"`
			Errors    []entry  `xml:"Errors>Error"`
			RequestID string
		}{Errors: []entry{{Code: f.Code, Message: f.Message}}, RequestID: requestID}
	} else {
		document = struct {
			XMLName   xml.Name `xml:"ErrorResponse"`
			Error     entry
			RequestId string
		}{Error: entry{"Sender", f.Code, f.Message}, RequestId: requestID}
	}
	data, err := xml.Marshal(document)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(f.Status)
	fmt.Fprintf(w, "%s%s", xml.Header, data)
}
