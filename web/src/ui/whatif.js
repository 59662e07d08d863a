// SPDX-License-Identifier: Apache-2.0
/* The style that what-if tables share. */
import { addStyle } from '../sheet.js';
import style from './whatif.css';

addStyle(style);
