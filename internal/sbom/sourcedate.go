// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// SourceDate reads SOURCE_DATE_EPOCH, the time of the sources, which whoever
// builds reproducibly says (https://reproducible-builds.org/specs/source-date-epoch/).
// Without it there is none to tell: it returns 1970.
func SourceDate(epoch string) (time.Time, error) {
	seconds, err := strconv.ParseInt(cmp.Or(epoch, "0"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s is not a number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
