;; Has an address of a kilobyte remapped.
;; want: AccessError: address
(func $bad (drop (call $remap_ip (i32.const 0) (i32.const 1024) (i32.const 2048) (i32.const 64))))
