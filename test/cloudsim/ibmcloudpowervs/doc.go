// SPDX-License-Identifier: Apache-2.0

// Package ibmcloudpowervs simulates Power Virtual Server with IBM's token
// service. Requests are checked with the models of IBM's own client (module
// power-go-client), unknown fields are refused, user tags are kept as the
// tagging service keeps them: in lower case, in no order, of 128 characters at
// most. What the models leave open is from the API's reference and pages; what
// is an assumption says so.
package ibmcloudpowervs
