/*
 * test_verbs_mlx5.c - what the mlx5 provider asks libmlx5 for, word by word, against fakes of it: this
 * program defines the library's functions itself, so no NIC is needed. The answers of the fakes are a NIC's
 * as the kernel's mlx5_ifc.h lays them out; a real NIC has not been asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <string.h>

#include "fabric/verbs_provider.h"

/* ---- the fakes ---- */

/* What was called, as text: one line a call. And the last raw request. */
static char calls[4096];
static uint8_t raw[80];
static int complete_with;

__attribute__((format(printf, 1, 2))) static void called(const char *format, ...)
{
    size_t length = strlen(calls);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(calls + length, sizeof calls - length, format, arguments);
    va_end(arguments);
}

static void fake_start(struct ibv_qp_ex *queue)
{
    called("start\n");
}

static int fake_complete(struct ibv_qp_ex *queue)
{
    called("complete\n");
    return complete_with;
}

static void fake_abort(struct ibv_qp_ex *queue)
{
    called("abort\n");
}

static void fake_read(struct ibv_qp_ex *queue, uint32_t key, uint64_t address)
{
    called("%llu flags %u: read %#x:%#llx", (unsigned long long)queue->wr_id, queue->wr_flags, key,
           (unsigned long long)address);
}

static void fake_write(struct ibv_qp_ex *queue, uint32_t key, uint64_t address)
{
    called("%llu flags %u: write %#x:%#llx", (unsigned long long)queue->wr_id, queue->wr_flags, key,
           (unsigned long long)address);
}

static void fake_cas(struct ibv_qp_ex *queue, uint32_t key, uint64_t address, uint64_t compare, uint64_t swap)
{
    called("%llu flags %u: cas %#x:%#llx %#llx to %#llx", (unsigned long long)queue->wr_id, queue->wr_flags,
           key, (unsigned long long)address, (unsigned long long)compare, (unsigned long long)swap);
}

static void fake_faa(struct ibv_qp_ex *queue, uint32_t key, uint64_t address, uint64_t add)
{
    called("%llu flags %u: faa %#x:%#llx add %#llx", (unsigned long long)queue->wr_id, queue->wr_flags, key,
           (unsigned long long)address, (unsigned long long)add);
}

static void fake_place(struct ibv_qp_ex *queue, uint32_t key, uint64_t address, uint32_t length)
{
    called(", %u bytes at %#x:%#llx\n", length, key, (unsigned long long)address);
}

static void fake_inline(struct ibv_qp_ex *queue, void *data, size_t length)
{
    called(", inline '%.*s'\n", (int)length, (const char *)data);
}

static struct ibv_qp_ex queue;
static struct mlx5dv_qp_ex special;

static void fake_raw(struct mlx5dv_qp_ex *of, const void *request)
{
    assert_ptr_equal(of, &special);
    memcpy(raw, request, sizeof raw);
    called("%llu raw\n", (unsigned long long)queue.wr_id);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *pair)
{
    assert_ptr_equal(pair, &queue.qp_base);
    return &queue;
}

struct mlx5dv_qp_ex *mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *of)
{
    assert_ptr_equal(of, &queue);
    return &special;
}

static struct ibv_device device;

bool mlx5dv_is_supported(struct ibv_device *of)
{
    return of == &device;
}

/* How the NIC answers QUERY_HCA_CAP. */
static struct {
    int error;
    uint8_t endianness;
    uint16_t operations, sizes;
} answer;

int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t in_length, void *out,
                            size_t out_length)
{
    /* QUERY_HCA_CAP of the atomic capabilities in force. */
    static const uint8_t query[16] = {0x01, 0x00, 0, 0, 0, 0, 0, 3 << 1 | 1};
    uint8_t *reply = out;
    assert_int_equal(in_length, sizeof query);
    assert_memory_equal(in, query, sizeof query);
    assert_int_equal(out_length, 16 + 4096);
    if (answer.error != 0)
        return answer.error;
    memset(reply, 0, out_length);
    /* Bits from the start of the capabilities: 0x40, 2 long; 0x90 and 0xb0, 16 long. */
    reply[16 + 0x40 / 8] = (uint8_t)(answer.endianness << 6);
    reply[16 + 0x90 / 8] = (uint8_t)(answer.operations >> 8);
    reply[16 + 0x90 / 8 + 1] = (uint8_t)answer.operations;
    reply[16 + 0xb0 / 8] = (uint8_t)(answer.sizes >> 8);
    reply[16 + 0xb0 / 8 + 1] = (uint8_t)answer.sizes;
    return 0;
}

static struct ibv_qp_init_attr_ex asked;
static struct mlx5dv_qp_init_attr asked_special;
static bool refuse_queue;

struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attributes,
                                struct mlx5dv_qp_init_attr *special_attributes)
{
    asked = *attributes;
    asked_special = *special_attributes;
    if (refuse_queue) {
        errno = ENOMEM;
        return NULL;
    }
    attributes->cap.max_send_wr = 511; /* granted */
    attributes->cap.max_inline_data = 220;
    return &queue.qp_base;
}

static struct ibv_device_attr_ex device_attributes;
static int query_device_error;

static int fake_query_device(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                             struct ibv_device_attr_ex *attributes, size_t size)
{
    assert_int_equal(size, sizeof *attributes);
    *attributes = device_attributes;
    return query_device_error;
}

static int setup(void **state)
{
    calls[0] = 0;
    complete_with = 0;
    memset(raw, 0xee, sizeof raw);
    queue = (struct ibv_qp_ex){
        .qp_base = {.qp_num = 0x00abcdef},
        .wr_start = fake_start,
        .wr_complete = fake_complete,
        .wr_abort = fake_abort,
        .wr_rdma_read = fake_read,
        .wr_rdma_write = fake_write,
        .wr_atomic_cmp_swp = fake_cas,
        .wr_atomic_fetch_add = fake_faa,
        .wr_set_sge = fake_place,
        .wr_set_inline_data = fake_inline,
    };
    special = (struct mlx5dv_qp_ex){.wr_raw_wqe = fake_raw};
    answer = (__typeof__(answer)){.endianness = 1, .operations = 0x000f, .sizes = 0x0008};
    refuse_queue = false;
    query_device_error = 0;
    device_attributes = (struct ibv_device_attr_ex){0};
    return 0;
}

static int post(const struct verbs_work *works, uint32_t count)
{
    static struct verbs_scratch scratch;
    return verbs_mlx5()->post(&queue.qp_base, works, count, &scratch);
}

/* ---- lists ---- */

static void test_lock_and_read(void **state)
{
    const struct verbs_work works[] = {
        {.id = 7,
         .operation = FABRIC_CAS,
         .length = 8,
         .local = 0x1000,
         .local_key = 0x11,
         .remote = 0x2008,
         .remote_key = 0x22,
         .compare = 0,
         .swap = 0x5a,
         .mask = UINT64_MAX},
        {.id = 8,
         .operation = FABRIC_READ,
         .signalled = true,
         .length = 1024,
         .local = 0x1008,
         .local_key = 0x11,
         .remote = 0x700000,
         .remote_key = 0x33},
    };
    assert_int_equal(post(works, 2), 0);
    assert_string_equal(calls, "start\n"
                               "7 flags 0: cas 0x22:0x2008 0 to 0x5a, 8 bytes at 0x11:0x1000\n"
                               "8 flags 2: read 0x33:0x700000, 1024 bytes at 0x11:0x1008\n"
                               "complete\n");
    assert_int_equal(IBV_SEND_SIGNALED, 2);
}

/* Write-back, and the unlock within its request. */
static void test_write_and_unlock(void **state)
{
    char unlock[] = "12345678";
    const struct verbs_work works[] = {
        {.id = 1,
         .operation = FABRIC_WRITE,
         .length = 64,
         .local = 0x1000,
         .local_key = 0x11,
         .remote = 0x9000,
         .remote_key = 0x33},
        {.id = 2,
         .operation = FABRIC_WRITE,
         .signalled = true,
         .inlined = true,
         .length = 8,
         .local = (uintptr_t)unlock,
         .remote = 0x40,
         .remote_key = 0x22},
    };
    assert_int_equal(post(works, 2), 0);
    assert_string_equal(calls, "start\n"
                               "1 flags 0: write 0x33:0x9000, 64 bytes at 0x11:0x1000\n"
                               "2 flags 2: write 0x22:0x40, inline '12345678'\n"
                               "complete\n");
}

static void test_addition(void **state)
{
    const struct verbs_work work = {.id = 3,
                                    .operation = FABRIC_FAA,
                                    .signalled = true,
                                    .length = 8,
                                    .local = 0x1000,
                                    .local_key = 0x11,
                                    .remote = 0x48,
                                    .remote_key = 0x22,
                                    .swap = 0xffffffffffffffa6};
    assert_int_equal(post(&work, 1), 0);
    assert_string_equal(calls, "start\n"
                               "3 flags 2: faa 0x22:0x48 add 0xffffffffffffffa6, 8 bytes at 0x11:0x1000\n"
                               "complete\n");
}

static struct verbs_work masked_cas(bool signalled)
{
    return (struct verbs_work){.id = 9,
                               .operation = FABRIC_CAS,
                               .signalled = signalled,
                               .masked = true,
                               .length = 8,
                               .local = 0x1112131415161718,
                               .local_key = 0x21222324,
                               .remote = 0x3132333435363738,
                               .remote_key = 0x41424344,
                               .compare = 0x5152535455565758,
                               .swap = 0x6162636465666768,
                               .mask = 0x00000000ffff0000};
}

/* The whole request, byte by byte. */
static const uint8_t masked_bytes[80] = {
    /* control: modifier 9 (8 | log2(8) - 2), index (libmlx5's), opcode 0x14 */
    0x09, 0x00, 0x00, 0x14,
    /* queue pair number, 5 segments */
    0xab, 0xcd, 0xef, 0x05,
    /* signature, stream of a DCI, fence and completion, immediate */
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    /* remote: address, key, reserved */
    0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0x00, 0x00, 0x00, 0x00,
    /* swap, compare */
    0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58,
    /* mask of the swap, mask of the comparison */
    0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x00, 0x00,
    /* place of the old value: length, key, address */
    0x00, 0x00, 0x00, 0x08, 0x21, 0x22, 0x23, 0x24, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18};

static void test_masked_lock_and_read(void **state)
{
    const struct verbs_work works[] = {
        masked_cas(false),
        {.id = 10,
         .operation = FABRIC_READ,
         .signalled = true,
         .length = 512,
         .local = 0x1008,
         .local_key = 0x11,
         .remote = 0x700000,
         .remote_key = 0x33},
    };
    assert_int_equal(post(works, 2), 0);
    assert_string_equal(calls, "start\n"
                               "9 raw\n"
                               "10 flags 2: read 0x33:0x700000, 512 bytes at 0x11:0x1008\n"
                               "complete\n");
    assert_memory_equal(raw, masked_bytes, sizeof raw);
}

/* Alone, or as the last of a list, it asks for a completion: bits 2 and 3 of the control segment's byte 11.
 */
static void test_masked_signalled(void **state)
{
    const struct verbs_work work = masked_cas(true);
    uint8_t expected[80];
    memcpy(expected, masked_bytes, sizeof expected);
    expected[11] = 0x08;
    assert_int_equal(post(&work, 1), 0);
    assert_string_equal(calls, "start\n9 raw\ncomplete\n");
    assert_memory_equal(raw, expected, sizeof raw);
}

/* ---- what cannot be posted ---- */

static void test_refused(void **state)
{
    struct verbs_work works[] = {
        {.id = 1, .operation = FABRIC_READ, .length = 8, .local = 0x1000, .remote = 0x2000},
        masked_cas(true)};
    special.wr_raw_wqe = NULL; /* a queue that was made without masks */
    assert_int_equal(post(works, 2), EOPNOTSUPP);
    assert_string_equal(calls, "start\n1 flags 0: read 0:0x2000, 8 bytes at 0:0x1000\nabort\n");

    calls[0] = 0;
    works[1] = (struct verbs_work){.operation = (enum fabric_operation)77};
    assert_int_equal(post(works, 2), EINVAL);
    assert_string_equal(calls, "start\n1 flags 0: read 0:0x2000, 8 bytes at 0:0x1000\nabort\n");
}

/* The queue is full, say: complete tells it, and ends the list itself. */
static void test_not_taken(void **state)
{
    const struct verbs_work work = {
        .id = 1, .operation = FABRIC_READ, .signalled = true, .length = 8, .local = 0x1000, .remote = 0x2000};
    complete_with = ENOMEM;
    assert_int_equal(post(&work, 1), ENOMEM);
    assert_string_equal(calls, "start\n1 flags 2: read 0:0x2000, 8 bytes at 0:0x1000\ncomplete\n");
}

/* However long the list, there is one doorbell. */
static void test_one_doorbell(void **state)
{
    struct verbs_work works[64];
    for (unsigned i = 0; i < 64; i++)
        works[i] = (struct verbs_work){.id = i, .operation = FABRIC_READ, .signalled = i == 63, .length = 8};
    assert_int_equal(post(works, 64), 0);
    unsigned starts = 0, completes = 0, reads = 0, signalled = 0;
    for (const char *line = calls; *line != 0; line = strchr(line, '\n') + 1) {
        starts += strncmp(line, "start\n", 6) == 0;
        completes += strncmp(line, "complete\n", 9) == 0;
        const char *end = strchr(line, '\n'), *read = strstr(line, ": read"), *flag = strstr(line, "flags 2");
        reads += read != NULL && read < end;
        signalled += flag != NULL && flag < end;
    }
    assert_int_equal(starts, 1);
    assert_int_equal(completes, 1);
    assert_int_equal(reads, 64);
    assert_int_equal(signalled, 1);
}

/* ---- queue pairs ---- */

static void test_queue_create(void **state)
{
    struct ibv_context context;
    struct ibv_pd domain = {.context = &context};
    struct ibv_cq completions;
    struct ibv_qp_init_attr attributes = {
        .send_cq = &completions,
        .recv_cq = &completions,
        .cap = {.max_send_wr = 300, .max_send_sge = 1, .max_inline_data = 64},
        .qp_type = IBV_QPT_RC};
    assert_ptr_equal(verbs_mlx5()->queue_create(&domain, &attributes, false), &queue.qp_base);
    assert_int_equal(attributes.cap.max_send_wr, 511); /* what was granted */
    assert_int_equal(attributes.cap.max_inline_data, 220);
    assert_int_equal(asked.comp_mask, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    assert_ptr_equal(asked.pd, &domain);
    assert_ptr_equal(asked.send_cq, &completions);
    assert_ptr_equal(asked.recv_cq, &completions);
    assert_int_equal(asked.qp_type, IBV_QPT_RC);
    assert_int_equal(asked.sq_sig_all, 0);
    assert_int_equal(asked.cap.max_send_wr, 300);
    const uint64_t needed = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE |
                            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                            IBV_QP_EX_WITH_BIND_MW;
    assert_int_equal(asked.send_ops_flags & needed, needed);
    assert_int_equal(asked_special.comp_mask, 0);
    assert_int_equal(asked_special.send_ops_flags, 0);

    assert_non_null(verbs_mlx5()->queue_create(&domain, &attributes, true));
    assert_int_equal(asked.send_ops_flags & needed, needed);
    assert_int_equal(asked_special.comp_mask,
                     MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS);
    assert_int_equal(asked_special.send_ops_flags, MLX5DV_QP_EX_WITH_RAW_WQE);
    assert_int_equal(asked_special.create_flags, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE);

    refuse_queue = true;
    attributes.cap.max_send_wr = 100000;
    assert_null(verbs_mlx5()->queue_create(&domain, &attributes, true));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(attributes.cap.max_send_wr, 100000);
}

/* ---- features ---- */

static struct verbs_features features(void)
{
    struct verbs_context context = {.sz = sizeof context,
                                    .query_device_ex = fake_query_device,
                                    .context.abi_compat = __VERBS_ABI_IS_EXTENDED};
    struct verbs_features found;
    memset(&found, 0xee, sizeof found);
    verbs_mlx5()->features(&context.context, &found);
    return found;
}

static void test_knows(void **state)
{
    struct ibv_device other;
    assert_true(verbs_mlx5()->knows(&device));
    assert_false(verbs_mlx5()->knows(&other));
    assert_string_equal(verbs_mlx5()->name, "mlx5");
}

static void test_masked_when_all_is_there(void **state)
{
    assert_true(features().masked_cas);
    answer.endianness = 3;
    assert_true(features().masked_cas);
    answer.endianness = 0; /* old values would come in the wrong order of bytes */
    assert_false(features().masked_cas);
    answer.endianness = 1;
    answer.operations = 0xfffb; /* all but masked compare-and-swap */
    assert_false(features().masked_cas);
    answer.operations = 0x0004;
    assert_true(features().masked_cas);
    answer.sizes = 0xfff7; /* all but 8 bytes */
    assert_false(features().masked_cas);
    answer.sizes = 0x0008;
    answer.error = EOPNOTSUPP; /* this process may not ask */
    assert_false(features().masked_cas);
    assert_true(features().release_by_write);
}

static void test_memory_and_windows(void **state)
{
    assert_false(features().windows);
    assert_int_equal(features().device_memory, 0);
    device_attributes.max_dm_size = 262144;
    device_attributes.orig_attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    assert_true(features().windows);
    assert_int_equal(features().device_memory, 262144);
    device_attributes.orig_attr.device_cap_flags =
        IBV_DEVICE_MEM_WINDOW; /* of type 1: not bound to a queue */
    assert_false(features().windows);
    query_device_error = EIO; /* what cannot be found out is not there */
    device_attributes.orig_attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    assert_false(features().windows);
    assert_int_equal(features().device_memory, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_lock_and_read, setup),
        cmocka_unit_test_setup(test_write_and_unlock, setup),
        cmocka_unit_test_setup(test_addition, setup),
        cmocka_unit_test_setup(test_masked_lock_and_read, setup),
        cmocka_unit_test_setup(test_masked_signalled, setup),
        cmocka_unit_test_setup(test_refused, setup),
        cmocka_unit_test_setup(test_not_taken, setup),
        cmocka_unit_test_setup(test_one_doorbell, setup),
        cmocka_unit_test_setup(test_queue_create, setup),
        cmocka_unit_test_setup(test_knows, setup),
        cmocka_unit_test_setup(test_masked_when_all_is_there, setup),
        cmocka_unit_test_setup(test_memory_and_windows, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
