// SPDX-License-Identifier: Apache-2.0

//go:build alibabacloud

package builtin

import _ "github.com/outrigger/outrigger/providers/alibabacloud" // registers provider alibabacloud
