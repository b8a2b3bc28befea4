// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"strconv"
)

// CheckAddress returns what is wrong with a flag that names an address to listen at;
// 0 and nothing are none.
func CheckAddress(flag, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--%s %q: want HOST:PORT, :PORT or 0", flag, address)
	}
	return nil
}
